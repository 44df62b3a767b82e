/* Many threads make, use and remove everything at once on one context. */
#include <pthread.h>

#include "pair.h"

enum { THREADS = 4, ROUNDS = 40 };

static struct ibv_context *context;

static void *rounds(void *unused)
{
	int round;

	(void)unused;
	for (round = 0; round < ROUNDS; round++) {
		char memory[64] = { 0 };
		struct ibv_comp_channel *channel;
		struct ibv_sge sge = { (uintptr_t)memory, 8, 0 };
		struct ibv_send_wr wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
		}, *bad;
		struct ibv_port_attr port;
		struct end a, b;
		struct ibv_pd *pd;
		struct ibv_mr *mr;
		struct ibv_cq *cq;
		struct ibv_wc wc;

		NEED(pd = ibv_alloc_pd(context));
		NEED(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
		NEED(channel = ibv_create_comp_channel(context));
		NEED(cq = ibv_create_cq(context, 8, NULL, channel, 0));
		a = end_on(pd, cq);
		b = end_on(pd, cq);
		connect_to(a.qp, b.qp->qp_num);
		connect_to(b.qp, a.qp->qp_num);
		CHECK(ibv_query_port(context, 1, &port) == 0);
		memcpy(memory, "threaded", 8);
		sge.lkey = mr->lkey;
		wr.wr.rdma.remote_addr = (uintptr_t)memory + 32;
		wr.wr.rdma.rkey = mr->rkey;
		NEED(ibv_req_notify_cq(cq, 0) == 0);
		NEED(ibv_post_send(a.qp, &wr, &bad) == 0);
		wc = next_completion(cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == a.qp->qp_num);
		CHECK(memcmp(memory + 32, "threaded", 8) == 0);
		CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_qp(b.qp) == 0);
		CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
		CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	int i;

	context = open_first();
	for (i = 0; i < THREADS; i++)
		NEED(pthread_create(&threads[i], NULL, rounds, NULL) == 0);
	for (i = 0; i < THREADS; i++)
		NEED(pthread_join(threads[i], NULL) == 0);
	CHECK(ibv_close_device(context) == 0);
	return failures != 0;
}
