/* Whether verbs objects cost what they should, and leave nothing behind.
 *
 *   objects register       times ibv_reg_mr of 1 TiB of reserved address space, prints "median_us max_us"
 *   objects churn COUNT    creates and destroys COUNT sets of PD, MR, CQ and QP, each connected to itself for one
 *                          WRITE; fails if memory, descriptors or threads grow
 *   objects forks COUNT    forks COUNT children under traffic, which end at once, run the exit handlers, run another
 *                          program, or use verbs; fails if the parent notices or any child ends otherwise
 *   objects footprint COUNT
 *                          prints the resident bytes of a process with one connected queue pair at rest, and for each of
 *                          COUNT further ones with the smallest queues; fails if either is too much
 *   objects leave          ends with 64 WRITEs of 1 MiB under way
 *
 * Needs only verbs.h.
 */
#include <dirent.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define WHO "objects"
#include "meet.h"

enum {
	TIMES = 101,
	/* Half of all cycles pass before the base is measured: the counters of some thousand queue pairs that are gone
	 * are kept for the report at exit. */
	WARM_UP_SHARE = 2,
	/* Room for the allocator, and for numbers in quarantine. */
	GROWTH_KB_MAX = 2048,
	/* A set of queue pair numbers is 65,534: more cycles than that may claim another, with its socket. */
	DESCRIPTORS_MAX = 2,
	WRITE_SECONDS_MAX = 30,
	ONE_BYTES_MAX = 30 << 20,
	/* Beyond its rings; the smallest rings are counted in. */
	FURTHER_BYTES_MAX = 64 << 10,
};

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static struct ibv_context *open_device(void)
{
	struct ibv_context *context;
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list && list[0]);
	MUST((context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	return context;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void time_registration(void)
{
	const size_t bytes = (size_t)1 << 40;
	void *reserved = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(reserved != MAP_FAILED);
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	MUST(pd);
	double took_us[TIMES];
	for (int i = 0; i < TIMES; i++) {
		double start = now_us();
		struct ibv_mr *mr = ibv_reg_mr(pd, reserved, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		took_us[i] = now_us() - start;
		MUST(mr);
		MUST(!ibv_dereg_mr(mr));
	}
	qsort(took_us, TIMES, sizeof *took_us, by_value);
	printf("%.1f %.1f\n", took_us[TIMES / 2], took_us[TIMES - 1]);
	MUST(!ibv_dealloc_pd(pd));
	MUST(!ibv_close_device(context));
}

/* What must not grow. */
struct holdings {
	long resident_kb, threads, descriptors;
};

static struct holdings holdings(void)
{
	struct holdings held = {0};
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	MUST(status);
	while (fgets(line, sizeof line, status)) {
		sscanf(line, "VmRSS: %ld", &held.resident_kb);
		sscanf(line, "Threads: %ld", &held.threads);
	}
	fclose(status);
	DIR *folder = opendir("/proc/self/fd");
	MUST(folder);
	while (readdir(folder))
		held.descriptors++;
	closedir(folder);
	return held;
}

static void connect_to_itself(struct ibv_context *context, struct ibv_qp *qp)
{
	union ibv_gid gid;
	MUST(!ibv_query_gid(context, 1, 0, &gid));
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	MUST(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .rq_psn = 7,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
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

static void write_one(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, uint64_t *words, uint64_t value)
{
	words[0] = value;
	struct ibv_sge sge = {.addr = (uintptr_t)words, .length = sizeof *words, .lkey = mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = value, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)&words[1], .rkey = mr->rkey},
	}, *bad;
	MUST(!ibv_post_send(qp, &wr, &bad));
	struct ibv_wc wc;
	double deadline_us = now_us() + WRITE_SECONDS_MAX * 1e6;
	while (!ibv_poll_cq(cq, 1, &wc)) {
		if (now_us() > deadline_us)
			fail("cycle %llu: no completion", (unsigned long long)value);
		sched_yield();
	}
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != value || wc.qp_num != qp->qp_num || words[1] != value)
		fail("cycle %llu: %s (vendor %u), id %llu, read back %llu", (unsigned long long)value,
		     ibv_wc_status_str(wc.status), wc.vendor_err, (unsigned long long)wc.wr_id,
		     (unsigned long long)words[1]);
}

static void churn(unsigned long count)
{
	static uint64_t words[2];
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_context *context = open_device();
	struct holdings before = {0};
	for (unsigned long i = 1; i <= count; i++) {
		struct ibv_pd *pd;
		struct ibv_mr *mr;
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		MUST((pd = ibv_alloc_pd(context)));
		MUST((mr = ibv_reg_mr(pd, words, sizeof words, access)));
		MUST((cq = ibv_create_cq(context, 4, NULL, NULL, 0)));
		struct ibv_qp_init_attr init = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
		};
		MUST((qp = ibv_create_qp(pd, &init)));
		connect_to_itself(context, qp);
		write_one(qp, cq, mr, words, i);
		MUST(!ibv_destroy_qp(qp));
		MUST(!ibv_destroy_cq(cq));
		MUST(!ibv_dereg_mr(mr));
		MUST(!ibv_dealloc_pd(pd));
		if (i == count / WARM_UP_SHARE)
			before = holdings();
	}
	struct holdings after = holdings();
	printf("%lu cycles: %ld to %ld kB, %ld to %ld descriptors, %ld to %ld threads\n", count, before.resident_kb,
	       after.resident_kb, before.descriptors, after.descriptors, before.threads, after.threads);
	if (after.resident_kb > before.resident_kb + GROWTH_KB_MAX)
		fail("memory grows");
	if (after.descriptors > before.descriptors + DESCRIPTORS_MAX || after.threads > before.threads)
		fail("descriptors or threads grow");
	MUST(!ibv_close_device(context));
}

/* Everything that one queue pair connected to itself takes. */
struct set {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct set connected(void *memory, size_t bytes)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct set set = {.context = open_device()};
	MUST((set.pd = ibv_alloc_pd(set.context)));
	MUST((set.mr = ibv_reg_mr(set.pd, memory, bytes, access)));
	MUST((set.cq = ibv_create_cq(set.context, 128, NULL, NULL, 0)));
	struct ibv_qp_init_attr init = {
		.send_cq = set.cq, .recv_cq = set.cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 64, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
	};
	MUST((set.qp = ibv_create_qp(set.pd, &init)));
	connect_to_itself(set.context, set.qp);
	return set;
}

static void post_write(struct set *set, char *memory, size_t bytes, uint64_t id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = bytes, .lkey = set->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)(memory + bytes), .rkey = set->mr->rkey},
	}, *bad;
	MUST(!ibv_post_send(set->qp, &wr, &bad));
}

/* What a child does with the objects of its parent ends in errors, not in a crash or a hang. */
static int misuse(struct set *set, char *memory)
{
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = set->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	struct ibv_wc wc;
	if (!ibv_post_send(set->qp, &wr, &bad))
		return 11;
	if (ibv_poll_cq(set->cq, 1, &wc) > 0)
		return 12;
	if (ibv_alloc_pd(set->context))
		return 13;
	return ibv_destroy_qp(set->qp) ? 0 : 14;
}

static void forks(unsigned long count)
{
	enum { BYTES = 1 << 20, WAYS = 4 };
	static char memory[2 * BYTES];
	struct set set = connected(memory, sizeof memory);
	struct holdings before = holdings();
	for (unsigned long i = 0; i < count; i++) {
		memset(memory, (int)i + 1, BYTES);
		post_write(&set, memory, BYTES, i);
		pid_t child = fork();
		MUST(child >= 0);
		if (!child) {
			alarm(20);
			switch (i % WAYS) {
			case 0:
				_exit(0);
			case 1:
				exit(0);
			case 2:
				execlp("true", "true", (char *)NULL);
				_exit(10);
			default:
				_exit(misuse(&set, memory));
			}
		}
		struct ibv_wc wc;
		double deadline_us = now_us() + WRITE_SECONDS_MAX * 1e6;
		while (!ibv_poll_cq(set.cq, 1, &wc)) {
			if (now_us() > deadline_us)
				fail("child %lu: no completion", i);
			sched_yield();
		}
		if (wc.status != IBV_WC_SUCCESS || wc.wr_id != i || memcmp(memory, memory + BYTES, BYTES))
			fail("child %lu: %s (vendor %u), or wrong bytes", i, ibv_wc_status_str(wc.status), wc.vendor_err);
		int status;
		MUST(waitpid(child, &status, 0) == child);
		if (status)
			fail("child %lu, way %lu: %s %d", i, i % WAYS, WIFEXITED(status) ? "code" : "signal",
			     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	}
	struct holdings after = holdings();
	printf("%lu children: %ld to %ld descriptors, %ld to %ld threads\n", count, before.descriptors, after.descriptors,
	       before.threads, after.threads);
	/* Path sockets are opened when first used. */
	if (after.descriptors > before.descriptors + 256 || after.threads > before.threads)
		fail("descriptors or threads grow");
}

static long resident_bytes(void)
{
	long kb = -1;
	char line[256];
	FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
	MUST(rollup);
	while (fgets(line, sizeof line, rollup))
		sscanf(line, "Rss: %ld kB", &kb);
	fclose(rollup);
	if (kb < 0)
		fail("no Rss in smaps_rollup");
	return kb << 10;
}

static void footprint(unsigned long count)
{
	static uint64_t words[2];
	struct set set = connected(words, sizeof words);
	for (uint64_t i = 1; i <= 100; i++)
		write_one(set.qp, set.cq, set.mr, words, i);
	long one = resident_bytes();
	struct ibv_qp **qps = calloc(count, sizeof *qps);
	MUST(qps);
	for (unsigned long i = 0; i < count; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = set.cq, .recv_cq = set.cq, .qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		};
		MUST((qps[i] = ibv_create_qp(set.pd, &init)));
		connect_to_itself(set.context, qps[i]);
		/* The handshake takes place, and a connection is made. */
		write_one(qps[i], set.cq, set.mr, words, i);
	}
	long further = (resident_bytes() - one) / (long)count;
	printf("%ld %ld\n", one, further);
	if (one > ONE_BYTES_MAX)
		fail("%ld bytes with one queue pair", one);
	if (further > FURTHER_BYTES_MAX)
		fail("%ld bytes for each further queue pair", further);
	for (unsigned long i = 0; i < count; i++)
		MUST(!ibv_destroy_qp(qps[i]));
	free(qps);
}

static void leave(void)
{
	enum { BYTES = 1 << 20 };
	static char memory[2 * BYTES];
	struct set set = connected(memory, sizeof memory);
	for (int i = 0; i < 64; i++)
		post_write(&set, memory, BYTES, i);
	struct ibv_wc wc;
	MUST(ibv_poll_cq(set.cq, 1, &wc) >= 0);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "register"))
		time_registration();
	else if (argc == 2 && !strcmp(argv[1], "leave"))
		leave();
	else if (argc == 3 && !strcmp(argv[1], "footprint") && strtoul(argv[2], NULL, 10))
		footprint(strtoul(argv[2], NULL, 10));
	else if (argc == 3 && !strcmp(argv[1], "forks"))
		forks(strtoul(argv[2], NULL, 10));
	else if (argc == 3 && !strcmp(argv[1], "churn") && strtoul(argv[2], NULL, 10) >= WARM_UP_SHARE)
		churn(strtoul(argv[2], NULL, 10));
	else {
		fputs("objects register | objects churn COUNT | objects forks COUNT | objects footprint COUNT | objects leave\n", stderr);
		return 2;
	}
	return 0;
}
