/* Whether many queue pairs between two processes get equal shares.
 *
 * One side serves, the other names it:   crowd [--queue-pairs N] [--messages N] [--bytes N] [--events] [HOST]
 *
 * With --events the client sleeps until there is a completion instead of asking again and again. Both sides are given the same numbers. The client posts all WRITEs at once, a round over all queue pairs after the
 * other, each queue pair from and to memory of its own, and prints a line of JSON: what it took, and Jain's index
 * (R. Jain, D.-M. Chiu, W. Hawe, DEC-TR-301: 1 if all are equal, 1/n if one has all) of the queue pairs' rates, each until
 * its own end, and of what each had completed when half of everything was. The server checks every byte.
 *
 * Needs only verbs.h.
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <time.h>

#define WHO "crowd"
#include "meet.h"

enum {
	POLLED_AT_ONCE = 64,
	SILENT_SECONDS_MAX = 60,
};

static const char PORT[] = "18515";

/* What the other side must know. */
struct introduction {
	uint64_t address;
	union ibv_gid gid;
	uint32_t rkey;
};

static unsigned long count = 2000, messages = 64, bytes = 64 << 10;
static int sleeps;
static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp **qps;
static uint64_t *memory;
static struct introduction self, peer;

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *array(size_t size)
{
	void *made = calloc(count, size);
	MUST(made);
	return made;
}

static uint64_t *words_of(unsigned long number)
{
	return memory + number * (bytes / sizeof *memory);
}

/* Different in every word of every queue pair. */
static uint64_t pattern(unsigned long number, unsigned long word)
{
	return ((uint64_t)number << 32 | word) + 1;
}

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list && list[0]);
	MUST((context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	MUST((pd = ibv_alloc_pd(context)));
	if (sleeps)
		MUST((channel = ibv_create_comp_channel(context)));
	MUST((cq = ibv_create_cq(context, count * messages, NULL, channel, 0)));
	memory = array(bytes);
	/* Pages are touched now, so that no run pays for them. */
	memset(memory, 0xff, count * bytes);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	MUST((mr = ibv_reg_mr(pd, memory, count * bytes, access)));
	qps = array(sizeof *qps);
	for (unsigned long i = 0; i < count; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = messages, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		};
		MUST((qps[i] = ibv_create_qp(pd, &init)));
	}
	self = (struct introduction){.address = (uintptr_t)memory, .rkey = mr->rkey};
	MUST(!ibv_query_gid(context, 1, 0, &self.gid));
}

static void close_all(void)
{
	for (unsigned long i = 0; i < count; i++)
		MUST(!ibv_destroy_qp(qps[i]));
	MUST(!ibv_dereg_mr(mr));
	MUST(!ibv_destroy_cq(cq));
	if (channel)
		MUST(!ibv_destroy_comp_channel(channel));
	MUST(!ibv_dealloc_pd(pd));
	MUST(!ibv_close_device(context));
}

static void connect_to(struct ibv_qp *qp, uint32_t peer_qpn)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	MUST(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer_qpn, .rq_psn = 7,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid, .hop_limit = 64}},
	};
	MUST(!ibv_modify_qp(qp, &rtr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};
	MUST(!ibv_modify_qp(qp, &rts,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_MAX_QP_RD_ATOMIC));
}

static void connect_all(int fd)
{
	uint32_t *mine = array(sizeof *mine), *theirs = array(sizeof *theirs);
	exchange(fd, &self, &peer, sizeof self);
	for (unsigned long i = 0; i < count; i++)
		mine[i] = qps[i]->qp_num;
	exchange(fd, mine, theirs, count * sizeof *mine);
	for (unsigned long i = 0; i < count; i++)
		connect_to(qps[i], theirs[i]);
	free(mine);
	free(theirs);
	char ready = 1;
	exchange(fd, &ready, &ready, 1);
}

static void post(unsigned long number)
{
	struct ibv_sge sge = {.addr = (uintptr_t)words_of(number), .length = bytes, .lkey = mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = peer.address + number * bytes, .rkey = peer.rkey},
	}, *bad;
	MUST(!ibv_post_send(qps[number], &wr, &bad));
}

static double jain(const double *shares)
{
	double sum = 0, squares = 0;
	for (unsigned long i = 0; i < count; i++)
		sum += shares[i], squares += shares[i] * shares[i];
	return sum * sum / (count * squares);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Returns when something may have been completed since the last poll that found nothing. */
static void sleep_until_completion(void)
{
	struct ibv_cq *which;
	void *ignored;
	MUST(!ibv_get_cq_event(channel, &which, &ignored));
	ibv_ack_cq_events(which, 1);
	MUST(!ibv_req_notify_cq(cq, 0));
}

/* `completed`, `at_half_time`: messages; `took_s`: until the queue pair's own end. */
static void complete_all(double start, double *completed, double *at_half_time, double *took_s)
{
	unsigned long total = 0, all = count * messages;
	double last = start;
	if (sleeps)
		MUST(!ibv_req_notify_cq(cq, 0));
	while (total < all) {
		struct ibv_wc wc[POLLED_AT_ONCE];
		int got = ibv_poll_cq(cq, POLLED_AT_ONCE, wc);
		double now = now_s();
		if (got < 0 || now > last + SILENT_SECONDS_MAX)
			fail("no completion after %lu of %lu", total, all);
		if (!got && sleeps)
			sleep_until_completion();
		for (int i = 0; i < got; i++) {
			unsigned long number = wc[i].wr_id;
			if (wc[i].status != IBV_WC_SUCCESS)
				fail("queue pair %lu: %s (vendor %u)", number, ibv_wc_status_str(wc[i].status),
				     wc[i].vendor_err);
			took_s[number] = now - start;
			completed[number]++;
			if (++total == all / 2)
				memcpy(at_half_time, completed, count * sizeof *completed);
			last = now;
		}
	}
}

static void work(void)
{
	double *completed = array(sizeof *completed), *at_half_time = array(sizeof *completed);
	double *took_s = array(sizeof *took_s), *rates = array(sizeof *rates);
	double start = now_s();
	for (unsigned long round = 0; round < messages; round++)
		for (unsigned long i = 0; i < count; i++)
			post(i);
	complete_all(start, completed, at_half_time, took_s);
	double seconds = now_s() - start;
	for (unsigned long i = 0; i < count; i++)
		rates[i] = messages * bytes / took_s[i];
	double fair = jain(rates);
	qsort(took_s, count, sizeof *took_s, by_value);
	printf("{\"queue_pairs\": %lu, \"messages\": %lu, \"bytes\": %lu, \"seconds\": %.3f, \"mb_per_s\": %.1f, "
	       "\"jain\": %.4f, \"jain_at_half_time\": %.4f, \"first_s\": %.3f, \"median_s\": %.3f, \"last_s\": %.3f}\n",
	       count, messages, bytes, seconds, count * messages * bytes / seconds / 1e6, fair, jain(at_half_time),
	       took_s[0], took_s[count / 2], took_s[count - 1]);
}

static void check(void)
{
	for (unsigned long i = 0; i < count; i++)
		for (unsigned long word = 0; word < bytes / sizeof *memory; word++)
			if (words_of(i)[word] != pattern(i, word))
				fail("queue pair %lu: wrong bytes at %lu", i, word * sizeof *memory);
}

int main(int argc, char **argv)
{
	const char *host = NULL;
	for (int i = 1; i < argc; i++) {
		int has_value = i + 1 < argc;
		if (has_value && !strcmp(argv[i], "--queue-pairs"))
			count = strtoul(argv[++i], NULL, 10);
		else if (has_value && !strcmp(argv[i], "--messages"))
			messages = strtoul(argv[++i], NULL, 10);
		else if (has_value && !strcmp(argv[i], "--bytes"))
			bytes = strtoul(argv[++i], NULL, 10) & ~7ul;
		else if (!strcmp(argv[i], "--events"))
			sleeps = 1;
		else if (argv[i][0] != '-' && !host)
			host = argv[i];
		else
			count = 0;
	}
	if (!count || !messages || !bytes)
		return fprintf(stderr, "usage: crowd [--queue-pairs N] [--messages N] [--bytes N] [--events] [HOST]\n"), 2;
	open_all();
	for (unsigned long i = 0; host && i < count; i++)
		for (unsigned long word = 0; word < bytes / sizeof *memory; word++)
			words_of(i)[word] = pattern(i, word);
	int fd = meet(host, PORT);
	connect_all(fd);
	if (host)
		work();
	char done = 1;
	exchange(fd, &done, &done, 1);
	if (!host)
		check();
	close_all();
	return 0;
}
