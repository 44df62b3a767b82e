/* Every supported operation, by posts and by the builder, between two queue pairs of one process; completions by
 * poll and by the iterator; errors flushed in order. */
#include "pair.h"

static char memory[256] __attribute__((aligned(8)));
static struct ibv_mr *mr;
static struct ibv_qp *near_qp, *far_qp;
static struct ibv_cq *near_cq, *far_cq;

#define LOCAL 0
#define REMOTE 64
#define INTO 128

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = {
		.wr_id = 77,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = 0x11223344,
	};

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory + REMOTE;
		wr.wr.atomic.rkey = mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)memory + REMOTE;
		wr.wr.rdma.rkey = mr->rkey;
	}
	return wr;
}

static void expect(struct ibv_wc wc, enum ibv_wc_opcode opcode, uint64_t wr_id)
{
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(wc.opcode == opcode);
	CHECK(wc.wr_id == wr_id);
}

static void post_receive(void)
{
	struct ibv_sge into = { (uintptr_t)memory + INTO, 16, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 5, .sg_list = &into, .num_sge = 1 }, *bad;

	NEED(ibv_post_recv(far_qp, &recv, &bad) == 0);
}

static void by_posts(uint32_t length, int flags)
{
	struct ibv_sge sge = { (uintptr_t)memory + LOCAL, length, mr->lkey };
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;

	memcpy(memory + LOCAL, "0123456789abcdef", 16);
	memset(memory + REMOTE, 0, 16);
	wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.send_flags |= flags;
	NEED(ibv_post_send(near_qp, &wr, &bad) == 0);
	expect(next_completion(near_cq), IBV_WC_RDMA_WRITE, 77);
	CHECK(memcmp(memory + REMOTE, memory + LOCAL, length) == 0 && memory[REMOTE + length] == 0);

	post_receive();
	wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, &sge);
	wr.send_flags |= flags;
	NEED(ibv_post_send(near_qp, &wr, &bad) == 0);
	expect(next_completion(near_cq), IBV_WC_RDMA_WRITE, 77);
	wc = next_completion(far_cq);
	expect(wc, IBV_WC_RECV_RDMA_WITH_IMM, 5);
	CHECK(wc.byte_len == length && (wc.wc_flags & IBV_WC_WITH_IMM) && wc.imm_data == 0x11223344);

	post_receive();
	memset(memory + INTO, 0, 16);
	wr = request(IBV_WR_SEND_WITH_IMM, &sge);
	wr.send_flags |= flags;
	NEED(ibv_post_send(near_qp, &wr, &bad) == 0);
	expect(next_completion(near_cq), IBV_WC_SEND, 77);
	wc = next_completion(far_cq);
	expect(wc, IBV_WC_RECV, 5);
	CHECK(wc.byte_len == length && wc.imm_data == 0x11223344 && wc.qp_num == far_qp->qp_num);
	CHECK(wc.src_qp == near_qp->qp_num && memcmp(memory + INTO, memory + LOCAL, length) == 0);

	if (flags & IBV_SEND_INLINE)
		return;
	memcpy(memory + REMOTE, "fedcba9876543210", 16);
	wr = request(IBV_WR_RDMA_READ, &sge);
	NEED(ibv_post_send(near_qp, &wr, &bad) == 0);
	expect(next_completion(near_cq), IBV_WC_RDMA_READ, 77);
	CHECK(memcmp(memory + REMOTE, memory + LOCAL, length) == 0);
}

static void atomics(void)
{
	struct ibv_sge sge = { (uintptr_t)memory + LOCAL, 8, mr->lkey };
	uint64_t *here = (uint64_t *)(memory + LOCAL), *there = (uint64_t *)(memory + REMOTE);
	struct ibv_send_wr wr, *bad;

	*there = 40;
	wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
	wr.wr.atomic.compare_add = 2;
	NEED(ibv_post_send(near_qp, &wr, &bad) == 0);
	expect(next_completion(near_cq), IBV_WC_FETCH_ADD, 77);
	CHECK(*here == 40 && *there == 42);
	wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, &sge);
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 7;
	NEED(ibv_post_send(near_qp, &wr, &bad) == 0);
	expect(next_completion(near_cq), IBV_WC_COMP_SWAP, 77);
	CHECK(*here == 42 && *there == 7);
	NEED(ibv_post_send(near_qp, &wr, &bad) == 0);
	expect(next_completion(near_cq), IBV_WC_COMP_SWAP, 77);
	CHECK(*here == 7 && *there == 7);
}

/* A list whose second request is bad: the first goes out, the bad one is named. */
static void half_a_list(void)
{
	struct ibv_sge sge = { (uintptr_t)memory + LOCAL, 8, mr->lkey };
	struct ibv_send_wr second = request(IBV_WR_RDMA_WRITE, &sge), first = second, *bad = NULL;

	first.next = &second;
	second.num_sge = 99;
	CHECK(ibv_post_send(near_qp, &first, &bad) == EINVAL && bad == &second);
	expect(next_completion(near_cq), IBV_WC_RDMA_WRITE, 77);
}

static void by_builder(struct ibv_qp_ex *qp, struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_data_buf pieces[2] = { { memory + LOCAL, 3 }, { memory + LOCAL + 3, 5 } };
	int tries, result;

	memcpy(memory + LOCAL, "builders", 8);
	memset(memory + REMOTE, 0, 16);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)memory + REMOTE);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)memory + LOCAL, 8);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)memory + REMOTE + 8);
	ibv_wr_set_inline_data_list(qp, 2, pieces);
	CHECK(ibv_wr_complete(qp) == 0);
	for (tries = 0; (result = ibv_start_poll(cq, &none)) == ENOENT && tries < 200000000; tries++)
		;
	NEED(result == 0);
	CHECK(cq->wr_id == 2 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
	CHECK(ibv_wc_read_qp_num(cq) == qp->qp_base.qp_num && ibv_wc_read_completion_ts(cq) != 0);
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	CHECK(memcmp(memory + REMOTE, "buildersbuilders", 16) == 0);

	/* A mistake anywhere posts nothing, and the builder is free again. */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, memory, 1 << 20);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	CHECK(ibv_start_poll(cq, &none) == ENOENT);
	CHECK(ibv_start_poll(cq, &none) == ENOENT);
}

static void flushed(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init;
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	uint64_t i;

	CHECK(ibv_query_qp(near_qp, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == far_qp->qp_num && attr.ah_attr.is_global);
	CHECK(init.send_cq == near_cq && init.cap.max_send_wr >= 16 && init.qp_type == IBV_QPT_RC);
	attr.qp_state = IBV_QPS_ERR;
	CHECK(ibv_modify_qp(near_qp, &attr, IBV_QP_STATE) == 0 && near_qp->state == IBV_QPS_ERR);
	/* Requests posted now are taken, and flushed in order, whatever they are not needed for (spdk 704). */
	for (i = 0; i < 3; i++) {
		struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
		struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);

		wr.wr_id = i;
		wr.send_flags = 0;
		CHECK(ibv_post_send(near_qp, &wr, &bad) == 0);
	}
	for (i = 0; i < 3; i++) {
		wc = next_completion(near_cq);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i && wc.qp_num == near_qp->qp_num);
	}
}

int main(void)
{
	static const uint32_t lengths[] = { 0, 1, 8, 16 };
	struct ibv_context *context = open_first();
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 32,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_qp_init_attr_ex qp_attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { 16, 16, 4, 4, 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND,
	};
	struct ibv_cq_ex *cq_ex;
	struct ibv_qp_ex *qp_ex;
	struct ibv_pd *pd;
	size_t i;

	NEED(pd = ibv_alloc_pd(context));
	NEED(mr = ibv_reg_mr(pd, memory, sizeof memory,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_ATOMIC));
	NEED(cq_ex = ibv_create_cq_ex(context, &cq_attr));
	near_cq = ibv_cq_ex_to_cq(cq_ex);
	NEED(far_cq = ibv_create_cq(context, 32, NULL, NULL, 0));
	qp_attr.pd = pd;
	qp_attr.send_cq = qp_attr.recv_cq = near_cq;
	NEED(near_qp = ibv_create_qp_ex(context, &qp_attr));
	NEED(qp_ex = ibv_qp_to_qp_ex(near_qp));
	far_qp = end_on(pd, far_cq).qp;
	connect_to(near_qp, far_qp->qp_num);
	connect_to(far_qp, near_qp->qp_num);

	for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		by_posts(lengths[i], 0);
		by_posts(lengths[i], IBV_SEND_INLINE);
	}
	atomics();
	half_a_list();
	by_builder(qp_ex, cq_ex);
	flushed();

	CHECK(ibv_destroy_qp(near_qp) == 0 && ibv_destroy_qp(far_qp) == 0);
	CHECK(ibv_destroy_cq(near_cq) == 0 && ibv_destroy_cq(far_cq) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return failures != 0;
}
