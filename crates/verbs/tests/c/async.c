/* Asynchronous events: an overrun completion queue is told of once, removal waits for the acknowledgement, and
 * events about objects that are gone are dropped. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "pair.h"

static char memory[64];
static struct ibv_mr *mr;

/* One more signalled request than the queue has room for, on queue pairs that use it. */
static void overrun(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_cq *other, struct ibv_qp *qps[2])
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = other,
		.cap = { 64, 1, 1, 1, 0 },
	};
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	int i;

	NEED(cq->cqe < 64);
	NEED(qps[0] = ibv_create_qp(pd, &init));
	init.send_cq = other;
	NEED(qps[1] = ibv_create_qp(pd, &init));
	connect_to(qps[0], qps[1]->qp_num);
	connect_to(qps[1], qps[0]->qp_num);
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 8;
	wr.wr.rdma.rkey = mr->rkey;
	for (i = 0; i < cq->cqe + 1; i++)
		NEED(ibv_post_send(qps[0], &wr, &bad) == 0);
}

static int readable(int fd, int milliseconds)
{
	struct pollfd watched = { .fd = fd, .events = POLLIN };

	return poll(&watched, 1, milliseconds);
}

static void remove_pair(struct ibv_qp *qps[2])
{
	CHECK(ibv_destroy_qp(qps[0]) == 0 && ibv_destroy_qp(qps[1]) == 0);
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_async_event event, of_queue = { 0 };
	struct ibv_cq *cq, *other;
	struct removal removal;
	struct ibv_qp *qps[2];
	pthread_t thread;
	struct ibv_pd *pd;
	struct ibv_wc wc[64];
	int told = 0, found, i;

	NEED(pd = ibv_alloc_pd(context));
	NEED(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	NEED(other = ibv_create_cq(context, 64, NULL, NULL, 0));
	NEED(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(ibv_get_async_event(context, &event), -1, EAGAIN);

	NEED(cq = ibv_create_cq(context, 4, NULL, NULL, 0));
	overrun(pd, cq, other, qps);
	CHECK(readable(context->async_fd, 10000) == 1);
	usleep(200000);
	while (ibv_get_async_event(context, &event) == 0) {
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			CHECK(event.element.cq == cq);
			of_queue = event;
			told++;
		} else {
			CHECK(event.element.qp == qps[0] || event.element.qp == qps[1]);
			ibv_ack_async_event(&event);
		}
	}
	CHECK(told == 1);
	/* What was in the queue may still be polled; nothing more than it holds, and nothing that was not posted. */
	found = ibv_poll_cq(cq, 64, wc);
	CHECK(found <= cq->cqe);
	for (i = 0; i < found; i++)
		CHECK(wc[i].qp_num == qps[0]->qp_num);

	remove_pair(qps);
	removal = (struct removal){ .cq = cq };
	NEED(pthread_create(&thread, NULL, remove_queue, &removal) == 0);
	usleep(100000);
	CHECK(!__atomic_load_n(&removal.done, __ATOMIC_SEQ_CST) || !told);
	ibv_ack_async_event(&of_queue);
	NEED(pthread_join(thread, NULL) == 0);

	/* The same, but nobody reads before the objects are gone. */
	NEED(cq = ibv_create_cq(context, 4, NULL, NULL, 0));
	overrun(pd, cq, other, qps);
	CHECK(readable(context->async_fd, 10000) == 1);
	usleep(200000);
	remove_pair(qps);
	CHECK(ibv_destroy_cq(cq) == 0);
	FAILS(ibv_get_async_event(context, &event), -1, EAGAIN);

	CHECK(ibv_destroy_cq(other) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return failures != 0;
}
