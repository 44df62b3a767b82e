/* Two connected queue pairs in one process, for the tests that move data. */
#ifndef PAIR_H
#define PAIR_H

#include <infiniband/verbs.h>

#include "check.h"

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct ibv_context *open_first(void)
{
	struct ibv_device **list;
	struct ibv_context *context;
	int number;

	NEED(list = ibv_get_device_list(&number));
	NEED(number > 0);
	NEED(context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	return context;
}

/* A queue pair in RTS that talks to number `peer` on this host. */
static inline void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_4096;
	attr.dest_qp_num = peer;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.hop_limit = 64;
	NEED(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
	NEED(ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	NEED(ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				   IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static inline struct end end_on(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { 16, 16, 4, 4, 64 },
	};
	struct end end = { .cq = cq };

	NEED(end.qp = ibv_create_qp(pd, &init));
	return end;
}

/* The next completion; gives up after a great many tries. */
static inline struct ibv_wc next_completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	long tries;

	for (tries = 0; tries < 200000000; tries++) {
		int found = ibv_poll_cq(cq, 1, &wc);

		NEED(found >= 0);
		if (found)
			return wc;
	}
	NEED(!"a completion");
	return wc;
}

/* Removes a queue in a thread of its own, as removal may wait. */
struct removal {
	struct ibv_cq *cq;
	int done;
};

static inline void *remove_queue(void *data)
{
	struct removal *removal = data;

	CHECK(ibv_destroy_cq(removal->cq) == 0);
	__atomic_store_n(&removal->done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

#endif
