/* Checks every byte that RDMA moves, and that results are as if in order.
 *
 * One side serves, the other names it:   pattern [--port P]
 *                                        pattern [--port P] [--seconds S] [--seed N] [--plant] [--idle S] HOST
 * With --idle S both sides rest for S seconds after the first round and must not use the processor meanwhile.
 * With --plant the client sends one wrong bit in its third round or soon after, which the server must notice.
 *
 * Both sides draw the same operations from the same seed. In each round the client
 *   - WRITEs to random, overlapping ranges of the server's memory, then writes a flag,
 *   - SENDs messages, the last one with an immediate,
 *   - waits for the server's answer, READs random ranges back, adds to and swaps a counter.
 * The server polls the flag in memory in odd rounds and its completion queue in even ones; either must mean
 * that all earlier WRITEs are there, the later ones on top. Each side keeps a model of the memory and compares.
 *
 * Needs only verbs.h; exits with 0 if everything was right, and says seed and round where not.
 */
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

enum {
	REGION_BYTES = 1 << 20,
	MESSAGE_BYTES_MAX = 256 << 10,
	SEND_BYTES_MAX = 64 << 10,
	WRITES_MAX = 24,
	SENDS_MAX = 8,
	READS_MAX = 8,
	ATOMICS_MAX = 8,
	SOURCE_BYTES = WRITES_MAX * MESSAGE_BYTES_MAX,
	QUEUE = 128,
	ROUND_SECONDS_MAX = 30,
	/* Resting, all threads together: the odd late acknowledgement, no clock. */
	IDLE_WAKES_MAX = 10,
	IDLE_CPU_US_MAX = 20000,
};

/* What the other side must know. */
struct introduction {
	uint32_t qpn, psn, rkey, idle_seconds;
	uint64_t address, seed;
	union ibv_gid gid;
};

/* Memory of one side: one region of the device. `counter` and `flag` lie apart from the rest. */
struct memory {
	uint8_t region[REGION_BYTES];
	uint8_t source[SOURCE_BYTES];
	uint8_t outbox[SENDS_MAX][SEND_BYTES_MAX];
	uint8_t inbox[SENDS_MAX][SEND_BYTES_MAX];
	uint8_t readback[READS_MAX][MESSAGE_BYTES_MAX];
	uint64_t results[ATOMICS_MAX];
	uint64_t flag_source;
	_Alignas(4096) volatile uint64_t counter;
	_Alignas(4096) volatile uint64_t flag;
};

static struct memory *memory;
static uint8_t model[REGION_BYTES];
static uint64_t counter_model, seed, round_number;
static struct introduction self, peer;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static uint32_t inline_bytes_max;
static int plant;
static uint64_t writes, sends, reads, atomics, bytes_checked;

#define WHO "pattern"
#define WHERE() \
	fprintf(stderr, "seed %llu, round %llu: ", (unsigned long long)seed, (unsigned long long)round_number)
#include "meet.h"

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* splitmix64 (Steele, Lea, Flood 2014): the same draws on both sides. */
static uint64_t state;

static uint64_t draw(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15ull);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t below(uint64_t bound)
{
	return draw() % bound;
}

/* Empty, tiny, a page, or many packets. */
static uint32_t draw_length(uint32_t longest)
{
	switch (below(8)) {
	case 0: return 0;
	case 1: case 2: return 1 + below(64);
	case 3: case 4: case 5: return 1 + below(4096);
	default: return 1 + below(longest);
	}
}

static void fill(uint8_t *at, uint32_t length)
{
	uint64_t word = 0;
	for (uint32_t i = 0; i < length; i++) {
		if (i % 8 == 0)
			word = draw();
		at[i] = word >> (i % 8 * 8);
	}
}

static void compare(const char *what, const uint8_t *got, const uint8_t *expected, uint32_t length)
{
	bytes_checked += length;
	if (!memcmp(got, expected, length))
		return;
	uint32_t i = 0, wrong = 0;
	for (uint32_t k = length; k-- > 0;)
		if (got[k] != expected[k])
			i = k, wrong++;
	fail("%s: %u of %u bytes are wrong, the first at %u: %02x instead of %02x", what, wrong, length, i, got[i],
	     expected[i]);
}

static void post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(qp, wr, &bad);
	if (error)
		fail("ibv_post_send: %s", strerror(error));
}

static struct ibv_sge piece(void *at, uint32_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)at, .length = length, .lkey = mr->lkey};
}

static void post_receive(uint64_t id, uint8_t *at)
{
	struct ibv_sge sge = piece(at, SEND_BYTES_MAX);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
	int error = ibv_post_recv(qp, &wr, &bad);
	if (error)
		fail("ibv_post_recv: %s", strerror(error));
}

static struct ibv_wc complete(void)
{
	struct ibv_wc wc;
	double deadline = now_s() + ROUND_SECONDS_MAX;
	int got;
	while (!(got = ibv_poll_cq(cq, 1, &wc)))
		if (now_s() > deadline)
			fail("no completion within %d s", ROUND_SECONDS_MAX);
	if (got < 0)
		fail("ibv_poll_cq failed");
	if (wc.status != IBV_WC_SUCCESS)
		fail("completion %llu: %s (vendor %u)", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
		     wc.vendor_err);
	return wc;
}

static uint64_t remote(const void *mine)
{
	return peer.address + ((uintptr_t)mine - (uintptr_t)memory);
}

/* Overlapping WRITEs, a later one's bytes on top. Both sides draw them; only the client posts. */
static void write_randomly(int is_client)
{
	uint8_t *source = memory->source;
	uint32_t count = 1 + below(WRITES_MAX);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t length = draw_length(MESSAGE_BYTES_MAX), offset = below(REGION_BYTES - length + 1);
		uint32_t first = below(length + 1), second = below(length - first + 1);
		fill(source, length);
		memcpy(model + offset, source, length);
		/* In the last WRITE of a round: no later one may cover it. */
		if (plant && round_number >= 3 && i + 1 == count && length)
			source[length - 1] ^= 1, plant = 0;
		if (is_client) {
			struct ibv_sge sges[3] = {piece(source, first), piece(source + first, second),
						  piece(source + first + second, length - first - second)};
			struct ibv_send_wr wr = {
				.wr_id = i, .sg_list = sges, .num_sge = length ? 3 : 0, .opcode = IBV_WR_RDMA_WRITE,
				.send_flags = length && length <= inline_bytes_max ? IBV_SEND_INLINE : 0,
				.wr.rdma = {.remote_addr = remote(memory->region + offset), .rkey = peer.rkey},
			};
			post(&wr);
		}
		source += length;
		writes++;
	}
}

static void write_flag(void)
{
	memory->flag_source = round_number;
	struct ibv_sge sge = piece(&memory->flag_source, sizeof memory->flag_source);
	struct ibv_send_wr wr = {
		.wr_id = 1000, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = remote((void *)&memory->flag), .rkey = peer.rkey},
	};
	post(&wr);
}

static void send_message(uint32_t index, uint32_t length, int is_last, uint32_t imm)
{
	struct ibv_sge sge = piece(memory->outbox[index], length);
	struct ibv_send_wr wr = {
		.wr_id = 2000 + index, .sg_list = &sge, .num_sge = length ? 1 : 0,
		.opcode = is_last ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm_data = htonl(imm),
		.send_flags = IBV_SEND_SIGNALED,
	};
	post(&wr);
}

static void expect_message(struct ibv_wc wc, uint32_t id, const uint8_t *expected, uint32_t length)
{
	if (!(wc.opcode & IBV_WC_RECV) || wc.wr_id != id)
		fail("receive %u expected, completion %llu (opcode %d) came", id, (unsigned long long)wc.wr_id, wc.opcode);
	if (wc.byte_len != length)
		fail("message %u has %u bytes instead of %u", id, wc.byte_len, length);
	compare("SEND", memory->inbox[id], expected, length);
}

static void client_round(int is_last)
{
	write_randomly(1);
	write_flag();
	uint32_t count = 1 + below(SENDS_MAX);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t length = draw_length(SEND_BYTES_MAX);
		fill(memory->outbox[i], length);
		send_message(i, length, i + 1 == count, is_last ? 2 : 1);
		sends++;
	}
	/* The flag's and the sends' own completions, in order, and the server's answer anywhere among them. */
	uint8_t answer[64];
	fill(answer, sizeof answer);
	for (uint32_t next = 0, answered = 0; next < count + 1 || !answered;) {
		struct ibv_wc wc = complete();
		if (wc.opcode & IBV_WC_RECV) {
			expect_message(wc, 0, answer, sizeof answer);
			answered = 1;
			continue;
		}
		uint64_t expected = next ? 2000 + next - 1 : 1000;
		if (wc.wr_id != expected)
			fail("completion %llu out of order, %llu expected", (unsigned long long)wc.wr_id,
			     (unsigned long long)expected);
		next++;
	}
	post_receive(0, memory->inbox[0]);

	uint32_t offsets[READS_MAX], lengths[READS_MAX], read_count = 1 + below(READS_MAX);
	for (uint32_t i = 0; i < read_count; i++) {
		lengths[i] = draw_length(MESSAGE_BYTES_MAX);
		offsets[i] = below(REGION_BYTES - lengths[i] + 1);
		struct ibv_sge sge = piece(memory->readback[i], lengths[i]);
		struct ibv_send_wr wr = {
			.wr_id = i, .sg_list = &sge, .num_sge = lengths[i] ? 1 : 0, .opcode = IBV_WR_RDMA_READ,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = remote(memory->region + offsets[i]), .rkey = peer.rkey},
		};
		post(&wr);
		reads++;
	}
	uint64_t olds[ATOMICS_MAX], atomic_count = 1 + below(ATOMICS_MAX);
	for (uint32_t i = 0; i < atomic_count; i++) {
		struct ibv_sge sge = piece(&memory->results[i], 8);
		uint64_t operand = draw(), is_swap = below(2), fits = below(2);
		struct ibv_send_wr wr = {
			.wr_id = 100 + i, .sg_list = &sge, .num_sge = 1,
			.opcode = is_swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.atomic = {.remote_addr = remote((void *)&memory->counter), .rkey = peer.rkey},
		};
		olds[i] = counter_model;
		wr.wr.atomic.compare_add = is_swap ? counter_model + !fits : operand;
		wr.wr.atomic.swap = operand;
		counter_model = is_swap ? (fits ? operand : counter_model) : counter_model + operand;
		post(&wr);
		atomics++;
	}
	for (uint32_t i = 0; i < read_count + atomic_count; i++) {
		struct ibv_wc wc = complete();
		uint64_t expected = i < read_count ? i : 100 + i - read_count;
		if (wc.wr_id != expected)
			fail("completion %llu out of order, %llu expected", (unsigned long long)wc.wr_id,
			     (unsigned long long)expected);
	}
	for (uint32_t i = 0; i < read_count; i++)
		compare("READ", memory->readback[i], model + offsets[i], lengths[i]);
	for (uint32_t i = 0; i < atomic_count; i++)
		if (memory->results[i] != olds[i])
			fail("atomic %u found %llx instead of %llx", i, (unsigned long long)memory->results[i],
			     (unsigned long long)olds[i]);
}

/* The next receive. Completions of the server's own answers may come before or after it. */
static struct ibv_wc complete_receive(void)
{
	struct ibv_wc wc;
	while (!((wc = complete()).opcode & IBV_WC_RECV))
		if (wc.wr_id != 2000)
			fail("completion %llu is nobody's", (unsigned long long)wc.wr_id);
	return wc;
}

/* Returns whether this was the last round. */
static int server_round(void)
{
	static uint32_t next_receive;
	static uint8_t expected[SEND_BYTES_MAX];
	write_randomly(0);
	if (round_number % 2) {
		double deadline = now_s() + ROUND_SECONDS_MAX;
		while (memory->flag != round_number) {
			if (now_s() > deadline)
				fail("no flag within %d s", ROUND_SECONDS_MAX);
			sched_yield();
		}
		compare("WRITE, by its flag", memory->region, model, REGION_BYTES);
	}
	uint32_t count = 1 + below(SENDS_MAX), imm = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t length = draw_length(SEND_BYTES_MAX);
		fill(expected, length);
		struct ibv_wc wc = complete_receive();
		if (!i)
			compare("WRITE, by a later SEND", memory->region, model, REGION_BYTES);
		expect_message(wc, next_receive, expected, length);
		post_receive(next_receive, memory->inbox[next_receive]);
		next_receive = (next_receive + 1) % SENDS_MAX;
		if (i + 1 == count) {
			if (!(wc.wc_flags & IBV_WC_WITH_IMM))
				fail("the last message has no immediate");
			imm = ntohl(wc.imm_data);
		}
		sends++;
	}
	fill(memory->outbox[0], 64);
	send_message(0, 64, 0, 0);
	if (imm != 1 && imm != 2)
		fail("immediate %u", imm);
	return imm == 2;
}

static int64_t microseconds(struct timeval t)
{
	return t.tv_sec * 1000000ll + t.tv_usec;
}

static void rest(uint32_t seconds)
{
	struct rusage before, after;
	/* What the first round left to acknowledge settles first. */
	sleep(1);
	getrusage(RUSAGE_SELF, &before);
	sleep(seconds);
	getrusage(RUSAGE_SELF, &after);
	int64_t cpu_us = microseconds(after.ru_utime) + microseconds(after.ru_stime) - microseconds(before.ru_utime) -
			 microseconds(before.ru_stime);
	long wakes = after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw;
	printf("idle for %u s: %ld wake-ups, %lld us of processor time\n", seconds, wakes, (long long)cpu_us);
	if (wakes > IDLE_WAKES_MAX || cpu_us > IDLE_CPU_US_MAX)
		fail("idle for %u s, yet %ld wake-ups and %lld us of processor time", seconds, wakes,
		     (long long)cpu_us);
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list && list[0]);
	MUST((context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	MUST((pd = ibv_alloc_pd(context)));
	MUST((cq = ibv_create_cq(context, 2 * QUEUE, NULL, NULL, 0)));
	memory = aligned_alloc(4096, (sizeof *memory + 4095) & ~4095ul);
	MUST(memory);
	memset(memory, 0, sizeof *memory);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	MUST((mr = ibv_reg_mr(pd, memory, sizeof *memory, access)));
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = QUEUE, .max_recv_wr = QUEUE, .max_send_sge = 3, .max_recv_sge = 1,
			.max_inline_data = 64},
	};
	if (!(qp = ibv_create_qp(pd, &init))) {
		init.cap.max_inline_data = 0;
		MUST((qp = ibv_create_qp(pd, &init)));
	}
	inline_bytes_max = init.cap.max_inline_data < 64 ? init.cap.max_inline_data : 64;
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
	MUST(!ibv_modify_qp(qp, &attributes,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void connect_qp(int is_client)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer.qpn, .rq_psn = peer.psn,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid, .hop_limit = 64}},
	};
	MUST(!ibv_modify_qp(qp, &rtr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	for (uint32_t i = 0; i < (is_client ? 1 : SENDS_MAX); i++)
		post_receive(i, memory->inbox[i]);
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = self.psn,
		.max_rd_atomic = 16,
	};
	MUST(!ibv_modify_qp(qp, &rts,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC));
}

int main(int count, char **words)
{
	const char *host = NULL, *port = "18515";
	double seconds = 5;
	uint32_t idle_seconds = 0;
	seed = time(NULL) * 1000003ull ^ getpid();
	for (int i = 1; i < count; i++) {
		int has_value = i + 1 < count;
		if (has_value && !strcmp(words[i], "--port"))
			port = words[++i];
		else if (has_value && !strcmp(words[i], "--seconds"))
			seconds = atof(words[++i]);
		else if (has_value && !strcmp(words[i], "--seed"))
			seed = strtoull(words[++i], NULL, 0);
		else if (has_value && !strcmp(words[i], "--idle"))
			idle_seconds = atoi(words[++i]);
		else if (!strcmp(words[i], "--plant"))
			plant = 1;
		else if (words[i][0] != '-' && !host)
			host = words[i];
		else
			return fprintf(stderr, "usage: pattern [--port P] [--seconds S] [--seed N] [--plant] [--idle S] [HOST]\n"), 2;
	}
	open_device();
	int fd = meet(host, port);
	self = (struct introduction){.qpn = qp->qp_num, .psn = rand() & 0xffffff, .rkey = mr->rkey,
				     .idle_seconds = idle_seconds, .address = (uintptr_t)memory, .seed = seed};
	MUST(!ibv_query_gid(context, 1, 0, &self.gid));
	exchange(fd, &self, &peer, sizeof self);
	if (!host)
		seed = peer.seed, idle_seconds = peer.idle_seconds;
	connect_qp(host != NULL);
	char ready = 1;
	exchange(fd, &ready, &ready, 1);

	double start = now_s();
	for (int is_last = 0; !is_last;) {
		round_number++;
		state = seed ^ round_number * 0xd1342543de82ef95ull;
		if (host) {
			is_last = now_s() - start >= seconds;
			client_round(is_last);
		} else {
			is_last = server_round();
		}
		if (round_number == 1 && idle_seconds)
			rest(idle_seconds);
	}
	uint64_t theirs = 0;
	exchange(fd, &counter_model, &theirs, sizeof theirs);
	counter_model = theirs;
	if (!host && memory->counter != counter_model)
		fail("the counter is %llx instead of %llx", (unsigned long long)memory->counter,
		     (unsigned long long)counter_model);
	MUST(!ibv_destroy_qp(qp));
	MUST(!ibv_dereg_mr(mr));
	MUST(!ibv_destroy_cq(cq));
	MUST(!ibv_dealloc_pd(pd));
	MUST(!ibv_close_device(context));
	printf("seed %llu: %llu rounds, %llu WRITEs, %llu SENDs, %llu READs, %llu atomics, %.1f MB checked, all right\n",
	       (unsigned long long)seed, (unsigned long long)round_number, (unsigned long long)writes,
	       (unsigned long long)sends, (unsigned long long)reads, (unsigned long long)atomics, bytes_checked / 1e6);
	return 0;
}
