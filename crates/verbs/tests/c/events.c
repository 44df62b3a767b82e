/* Completion channels: edge-triggered epoll, non-blocking and blocking reads, the acknowledgement that removal
 * waits for, and events of queues that are gone. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "pair.h"

static char memory[64];
static struct ibv_mr *mr;

static void post(struct ibv_qp *from, struct ibv_qp *to, int solicited)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey }, into = { (uintptr_t)memory + 32, 8, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &into, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = {
		.wr_id = 2,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = solicited ? IBV_SEND_SOLICITED : 0,
	}, *bad;

	NEED(ibv_post_recv(to, &recv, &bad_recv) == 0);
	NEED(ibv_post_send(from, &send, &bad) == 0);
}

static int ready(int epoll, int milliseconds)
{
	struct epoll_event event;

	return epoll_wait(epoll, &event, 1, milliseconds);
}

static int watch(int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int epoll;

	NEED((epoll = epoll_create1(0)) >= 0);
	NEED(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	NEED(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	return epoll;
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_comp_channel *channel;
	struct ibv_cq *sends, *receives, *found;
	struct removal removal;
	pthread_t thread;
	struct end a, b;
	struct ibv_pd *pd;
	struct ibv_wc wc;
	void *cookie;
	int epoll, events = 0;

	NEED(pd = ibv_alloc_pd(context));
	NEED(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
	NEED(channel = ibv_create_comp_channel(context));
	NEED(sends = ibv_create_cq(context, 16, NULL, NULL, 0));
	NEED(receives = ibv_create_cq(context, 16, memory, channel, 0));
	a = end_on(pd, sends);
	b = end_on(pd, receives);
	connect_to(a.qp, b.qp->qp_num);
	connect_to(b.qp, a.qp->qp_num);
	epoll = watch(channel->fd);

	/* Not armed: no event. Nobody polls, so the device itself has to make progress. */
	post(a.qp, b.qp, 0);
	wc = next_completion(receives);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == 8);
	CHECK(ready(epoll, 0) == 0);

	/* Armed: one event, however many completions. */
	CHECK(ibv_req_notify_cq(receives, 0) == 0);
	post(a.qp, b.qp, 0);
	CHECK(ready(epoll, 10000) == 1);
	CHECK(ibv_get_cq_event(channel, &found, &cookie) == 0 && found == receives && cookie == memory);
	events++;
	post(a.qp, b.qp, 0);
	next_completion(receives);
	next_completion(receives);
	FAILS(ibv_get_cq_event(channel, &found, &cookie), -1, EAGAIN);

	/* Armed while a completion waits: an event at once, since the program may already have stopped polling. */
	post(a.qp, b.qp, 0);
	next_completion(receives);
	post(a.qp, b.qp, 0);
	usleep(100000);
	CHECK(ibv_req_notify_cq(receives, 0) == 0);
	CHECK(ready(epoll, 10000) == 1);
	CHECK(ibv_get_cq_event(channel, &found, &cookie) == 0);
	events++;
	next_completion(receives);

	/* Armed for solicited ones only. */
	CHECK(ibv_req_notify_cq(receives, 1) == 0);
	post(a.qp, b.qp, 0);
	next_completion(receives);
	FAILS(ibv_get_cq_event(channel, &found, &cookie), -1, EAGAIN);
	post(a.qp, b.qp, 1);
	CHECK(ready(epoll, 10000) == 1);
	/* Read as a blocking program does. */
	NEED(fcntl(channel->fd, F_SETFL, 0) == 0);
	CHECK(ibv_get_cq_event(channel, &found, &cookie) == 0 && found == receives);
	events++;
	next_completion(receives);

	/* An event that is read only after its queue is gone is dropped. */
	CHECK(ibv_req_notify_cq(receives, 0) == 0);
	post(a.qp, b.qp, 0);
	next_completion(receives);
	CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_qp(b.qp) == 0);
	CHECK(ibv_destroy_cq(sends) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);

	/* Removal waits for every acknowledgement. */
	ibv_ack_cq_events(receives, events - 1);
	removal = (struct removal){ .cq = receives };
	NEED(pthread_create(&thread, NULL, remove_queue, &removal) == 0);
	usleep(100000);
	CHECK(!__atomic_load_n(&removal.done, __ATOMIC_SEQ_CST));
	ibv_ack_cq_events(receives, 1);
	NEED(pthread_join(thread, NULL) == 0);
	NEED(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(ibv_get_cq_event(channel, &found, &cookie), -1, EAGAIN);
	CHECK(ibv_destroy_comp_channel(channel) == 0);

	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return failures != 0;
}
