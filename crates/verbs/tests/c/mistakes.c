/* Queues that are full, lists that are wrong in the middle, and registered memory that is not there: what was good
 * completes, what was not is named by bad_wr or ends as a completion with an error, and the process lives. */
#include <pthread.h>
#include <sys/mman.h>

#include "pair.h"

static char memory[4096];
static struct ibv_mr *mr;

static struct ibv_send_wr send_of(struct ibv_sge *sge, int opcode, uint64_t id)
{
	struct ibv_send_wr wr = {
		.wr_id = id,
		.sg_list = sge,
		.num_sge = sge ? 1 : 0,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	};

	return wr;
}

static void pair_on(struct ibv_pd *pd, struct ibv_cq *cqs[2], struct end ends[2])
{
	ends[0] = end_on(pd, cqs[0]);
	ends[1] = end_on(pd, cqs[1]);
	connect_to(ends[0].qp, ends[1].qp->qp_num);
	connect_to(ends[1].qp, ends[0].qp->qp_num);
}

static void unpair(struct end ends[2])
{
	CHECK(ibv_destroy_qp(ends[0].qp) == 0 && ibv_destroy_qp(ends[1].qp) == 0);
}

/* More than fits: ENOMEM at the first that does not, the others complete, and there is room again. */
static void full_queues(struct ibv_pd *pd, struct ibv_cq *cqs[2])
{
	enum { MANY = 512 };
	static struct ibv_send_wr list[MANY];
	struct ibv_recv_wr recv = { .num_sge = 0 }, *bad_recv;
	struct ibv_send_wr *bad;
	struct end ends[2];
	int i, posted, round;

	pair_on(pd, cqs, ends);
	for (round = 0; round < 3; round++) {
		/* No receive is there, so none of these completes while they are posted. */
		for (i = 0; i < MANY; i++) {
			list[i] = send_of(NULL, IBV_WR_SEND, i);
			list[i].next = i < MANY - 1 ? &list[i + 1] : NULL;
		}
		bad = NULL;
		CHECK(ibv_post_send(ends[0].qp, list, &bad) == ENOMEM);
		NEED(bad);
		posted = (int)(bad - list);
		CHECK(posted >= 16 && posted < MANY);
		CHECK(ibv_post_send(ends[0].qp, &list[posted], &bad) == ENOMEM && bad == &list[posted]);
		for (i = 0; i < posted; i++) {
			struct ibv_wc wc;

			CHECK(ibv_post_recv(ends[1].qp, &recv, &bad_recv) == 0);
			wc = next_completion(cqs[0]);
			CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)i);
			CHECK(next_completion(cqs[1]).status == IBV_WC_SUCCESS);
		}
	}
	for (i = 0; i < MANY; i++) {
		int result = ibv_post_recv(ends[1].qp, &recv, &bad_recv);

		CHECK(result == 0 || (result == ENOMEM && bad_recv == &recv));
		if (result)
			break;
	}
	CHECK(i >= 16 && i < MANY);
	unpair(ends);
}

/* The k-th of a list is wrong: those before are carried out, bad_wr names it, those behind are as if never posted. */
static void wrong_in_the_middle(struct ibv_pd *pd, struct ibv_cq *cqs[2])
{
	static const struct {
		int opcode, num_sge, why;
		unsigned flags;
	} wrongs[] = {
		{ 999, 1, EINVAL, 0 },
		{ IBV_WR_BIND_MW, 1, EOPNOTSUPP, 0 },
		{ IBV_WR_RDMA_WRITE, 1000, EINVAL, 0 },
		{ IBV_WR_RDMA_WRITE, -1, EINVAL, 0 },
		{ IBV_WR_RDMA_WRITE, 1, EINVAL, 1u << 31 },
		{ IBV_WR_RDMA_READ, 1, EINVAL, IBV_SEND_INLINE },
	};
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_recv_wr recvs[3] = { { 0 } }, *bad_recv = NULL;
	size_t i, k, at;

	for (i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
		for (k = 0; k < 4; k++) {
			struct ibv_send_wr list[4], *bad = NULL;
			struct end ends[2];

			pair_on(pd, cqs, ends);
			for (at = 0; at < 4; at++) {
				list[at] = send_of(&sge, IBV_WR_RDMA_WRITE, at);
				list[at].wr.rdma.remote_addr = (uintptr_t)memory + 64;
				list[at].wr.rdma.rkey = mr->rkey;
				list[at].next = at < 3 ? &list[at + 1] : NULL;
			}
			list[k].opcode = wrongs[i].opcode;
			list[k].num_sge = wrongs[i].num_sge;
			list[k].send_flags |= wrongs[i].flags;
			CHECK(ibv_post_send(ends[0].qp, list, &bad) == wrongs[i].why && bad == &list[k]);
			for (at = 0; at < k; at++) {
				struct ibv_wc wc = next_completion(cqs[0]);

				CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == at);
			}
			/* Nothing of the rest; the next good one is the next to complete. */
			list[0] = send_of(NULL, IBV_WR_RDMA_WRITE, 77);
			CHECK(ibv_post_send(ends[0].qp, list, &bad) == 0);
			CHECK(next_completion(cqs[0]).wr_id == 77);
			unpair(ends);
		}
	}
	for (k = 0; k < 3; k++) {
		struct end ends[2];

		pair_on(pd, cqs, ends);
		memset(recvs, 0, sizeof recvs);
		for (at = 0; at < 3; at++) {
			recvs[at].wr_id = at;
			recvs[at].next = at < 2 ? &recvs[at + 1] : NULL;
		}
		recvs[k].num_sge = 100;
		CHECK(ibv_post_recv(ends[1].qp, recvs, &bad_recv) == EINVAL && bad_recv == &recvs[k]);
		unpair(ends);
	}
}

/* Memory that is registered, as registering looks at no page, but is not mapped. */
static void memory_that_is_not_there(struct ibv_pd *pd, struct ibv_cq *cqs[2])
{
	static const struct {
		int opcode, local, status;
	} cases[] = {
		{ IBV_WR_RDMA_WRITE, 1, IBV_WC_LOC_PROT_ERR },
		{ IBV_WR_SEND, 1, IBV_WC_LOC_PROT_ERR },
		{ IBV_WR_RDMA_READ, 1, IBV_WC_LOC_PROT_ERR },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 1, IBV_WC_LOC_PROT_ERR },
		{ IBV_WR_RDMA_WRITE, 0, IBV_WC_REM_OP_ERR },
		{ IBV_WR_RDMA_READ, 0, IBV_WC_REM_OP_ERR },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 0, IBV_WC_REM_OP_ERR },
		{ IBV_WR_SEND, 0, IBV_WC_REM_OP_ERR },
	};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *wild;
	char *nothing;
	size_t i;

	NEED((nothing = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	NEED(munmap(nothing, 8192) == 0);
	NEED(wild = ibv_reg_mr(pd, nothing, 8192, access));
	for (i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ibv_sge good = { (uintptr_t)memory, 8, mr->lkey }, bad_sge = { (uintptr_t)nothing, 8, wild->lkey };
		struct ibv_sge *here = cases[i].local ? &bad_sge : &good, *there = cases[i].local ? &good : &bad_sge;
		struct ibv_send_wr wr = send_of(here, cases[i].opcode, 1), *bad;
		struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = there, .num_sge = 1 }, *bad_recv;
		struct end ends[2];
		struct ibv_wc wc;

		pair_on(pd, cqs, ends);
		NEED(ibv_post_recv(ends[1].qp, &recv, &bad_recv) == 0);
		if (cases[i].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = there->addr;
			wr.wr.atomic.rkey = there->lkey;
		} else {
			wr.wr.rdma.remote_addr = there->addr;
			wr.wr.rdma.rkey = there->lkey;
		}
		NEED(ibv_post_send(ends[0].qp, &wr, &bad) == 0);
		wc = next_completion(cqs[0]);
		CHECK(wc.wr_id == 1 && wc.vendor_err != 0);
		if ((int)wc.status != cases[i].status) {
			fprintf(stderr, "case %zu: %s\n", i, ibv_wc_status_str(wc.status));
			failures++;
		}
		if (!cases[i].local) {
			/* The receive ends as well: it met the fault, or was flushed. */
			wc = next_completion(cqs[1]);
			CHECK(wc.wr_id == 2 && wc.status != IBV_WC_SUCCESS);
		}
		unpair(ends);
	}
	CHECK(ibv_dereg_mr(wild) == 0);
}

static struct ibv_cq_ex *shared;
static int inside;

/* What one thread starts, it ends, whether it found something, a next one, or nothing at all. */
static void *iterate(void *unused)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int i;

	(void)unused;
	for (i = 0; i < 20000; i++) {
		if (ibv_start_poll(shared, &attr))
			continue;
		CHECK(__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) == 1);
		while (ibv_next_poll(shared) == 0)
			;
		CHECK(ibv_next_poll(shared) == ENOENT);
		CHECK(__atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST) == 0);
		ibv_end_poll(shared);
	}
	return NULL;
}

/* Two threads iterate over one queue: never at once, and never without end (rdma-core PR 1617). */
static void iterating_together(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 64 };
	struct ibv_send_wr wr = send_of(NULL, IBV_WR_SEND, 1), *bad;
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	pthread_t threads[2];
	struct end end;
	int i;

	NEED(shared = ibv_create_cq_ex(context, &init));
	end = end_on(pd, ibv_cq_ex_to_cq(shared));
	/* In the error state every request completes at once. */
	NEED(ibv_modify_qp(end.qp, &error, IBV_QP_STATE) == 0);
	for (i = 0; i < 2; i++)
		NEED(pthread_create(&threads[i], NULL, iterate, NULL) == 0);
	for (i = 0; i < 30; i++)
		CHECK(ibv_post_send(end.qp, &wr, &bad) == 0 || errno == ENOMEM);
	for (i = 0; i < 2; i++)
		NEED(pthread_join(threads[i], NULL) == 0);
	CHECK(ibv_destroy_qp(end.qp) == 0 && ibv_destroy_cq(end.cq) == 0);
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_cq *cqs[2];
	struct ibv_pd *pd;

	NEED(pd = ibv_alloc_pd(context));
	NEED(mr = ibv_reg_mr(pd, memory, sizeof memory,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_ATOMIC));
	NEED(cqs[0] = ibv_create_cq(context, 1024, NULL, NULL, 0));
	NEED(cqs[1] = ibv_create_cq(context, 1024, NULL, NULL, 0));
	full_queues(pd, cqs);
	wrong_in_the_middle(pd, cqs);
	memory_that_is_not_there(pd, cqs);
	iterating_together(context, pd);
	CHECK(ibv_destroy_cq(cqs[0]) == 0 && ibv_destroy_cq(cqs[1]) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return failures != 0;
}
