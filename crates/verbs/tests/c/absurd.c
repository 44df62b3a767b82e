/* Null handles, values out of range and unsupported verbs: each call fails as its manual page says, nothing
 * crashes, and no byte is written beyond what the caller has. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>

#include "check.h"

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type);
/* Of the driver header, which is not public, but exported in node 1.0. */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
/* The function behind the header's macro. */
#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr);
#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);

static char memory[4096];

static void null_handles(void)
{
	struct ibv_async_event event = { .element.cq = NULL, .event_type = IBV_EVENT_CQ_ERR };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr = { 0 };
	struct ibv_device_attr device;
	union ibv_gid gid;
	struct ibv_cq *cq;
	void *cookie;
	uint16_t pkey;

	ibv_free_device_list(NULL);
	FAILS(ibv_get_device_name(NULL), NULL, EINVAL);
	FAILS(ibv_get_device_index(NULL), -1, EINVAL);
	CHECK(ibv_get_device_guid(NULL) == 0);
	FAILS(ibv_open_device(NULL), NULL, EINVAL);
	FAILS(ibv_open_device((struct ibv_device *)memory), NULL, EINVAL);
	CHECK(ibv_close_device(NULL) == EINVAL);
	CHECK(ibv_close_device((struct ibv_context *)memory) == EINVAL);
	CHECK(ibv_query_device(NULL, &device) == EINVAL);
	CHECK(ibv_query_port(NULL, 1, NULL) == EINVAL);
	FAILS(ibv_query_gid(NULL, 1, 0, &gid), -1, EINVAL);
	FAILS(ibv_query_pkey(NULL, 1, 0, &pkey), -1, EINVAL);
	FAILS(ibv_get_pkey_index(NULL, 1, 0xffff), -1, EINVAL);
	FAILS(ibv_query_gid_type(NULL, 1, 0, NULL), -1, EINVAL);
	FAILS(ibv_alloc_pd(NULL), NULL, EINVAL);
	CHECK(ibv_dealloc_pd(NULL) == EINVAL);
	FAILS(ibv_reg_mr(NULL, memory, sizeof memory, 0), NULL, EINVAL);
	FAILS(ibv_reg_mr_iova2(NULL, memory, sizeof memory, 0, 0), NULL, EINVAL);
	CHECK(ibv_dereg_mr(NULL) == EINVAL);
	FAILS(ibv_create_comp_channel(NULL), NULL, EINVAL);
	CHECK(ibv_destroy_comp_channel(NULL) == EINVAL);
	FAILS(ibv_create_cq(NULL, 1, NULL, NULL, 0), NULL, EINVAL);
	CHECK(ibv_destroy_cq(NULL) == EINVAL);
	FAILS(ibv_get_cq_event(NULL, &cq, &cookie), -1, EINVAL);
	ibv_ack_cq_events(NULL, 1);
	FAILS(ibv_get_async_event(NULL, &event), -1, EINVAL);
	ibv_ack_async_event(NULL);
	ibv_ack_async_event(&event);
	FAILS(ibv_create_qp(NULL, &init), NULL, EINVAL);
	CHECK(ibv_modify_qp(NULL, &attr, 0) == EINVAL);
	CHECK(ibv_query_qp(NULL, &attr, 0, &init) == EINVAL);
	CHECK(ibv_destroy_qp(NULL) == EINVAL);
	FAILS(ibv_qp_to_qp_ex(NULL), NULL, EINVAL);
}

static int all_bytes(const void *from, size_t length, int value)
{
	const unsigned char *byte = from;

	while (length--)
		if (*byte++ != value)
			return 0;
	return 1;
}

/* Callers built against older headers have shorter structs. */
static void no_byte_too_many(struct ibv_context *context)
{
	struct verbs_context *verbs = verbs_get_ctx(context);
	unsigned char room[1024];
	size_t length;

	NEED(verbs && verbs->query_port && verbs->query_device_ex);
	for (length = 40; length <= 64; length += 4) {
		memset(room, 0xa5, sizeof room);
		CHECK(verbs->query_port(context, 1, (void *)room, length) == 0);
		CHECK(all_bytes(room + length, sizeof room - length, 0xa5));
	}
	memset(room, 0xa5, sizeof room);
	CHECK(ibv_query_port(context, 1, (void *)room) == 0);
	CHECK(all_bytes(room + 48, sizeof room - 48, 0xa5));
	memset(room, 0xa5, sizeof room);
	CHECK(ibv_query_device(context, (void *)room) == 0);
	CHECK(all_bytes(room + 232, sizeof room - 232, 0xa5));
	for (length = 232; length <= 480; length += 8) {
		memset(room, 0xa5, sizeof room);
		CHECK(verbs->query_device_ex(context, NULL, (void *)room, length) == 0);
		CHECK(all_bytes(room + length, sizeof room - length, 0xa5));
	}
	memset(room, 0xa5, sizeof room);
	CHECK(_ibv_query_gid_ex(context, 1, 0, (void *)room, 0, 24) == 0);
	CHECK(all_bytes(room + 24, sizeof room - 24, 0xa5));
	memset(room, 0xa5, sizeof room);
	CHECK(_ibv_query_gid_table(context, (void *)room, 8, 0, 32) == 1);
	CHECK(all_bytes(room + 32, sizeof room - 32, 0xa5));
}

static void tables(struct ibv_context *context)
{
	static const int ports[] = { 0, 2, 255 };
	struct ibv_gid_entry entry;
	struct ibv_device_attr device;
	unsigned int type = 99;
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint16_t pkey = 0;
	size_t i;

	for (i = 0; i < sizeof ports / sizeof *ports; i++) {
		CHECK(___ibv_query_port(context, ports[i], &port) == EINVAL);
		FAILS(ibv_query_gid(context, ports[i], 0, &gid), -1, EINVAL);
		FAILS(ibv_query_pkey(context, ports[i], 0, &pkey), -1, EINVAL);
		CHECK(ibv_query_gid_ex(context, ports[i], 0, &entry, 0) == EINVAL);
	}
	FAILS(ibv_query_gid(context, 1, 1, &gid), -1, EINVAL);
	FAILS(ibv_query_gid(context, 1, -1, &gid), -1, EINVAL);
	FAILS(ibv_query_gid(context, 1, 0, NULL), -1, EINVAL);
	FAILS(ibv_query_pkey(context, 1, 1, &pkey), -1, EINVAL);
	CHECK(ibv_query_gid_ex(context, 1, 1, &entry, 0) == EINVAL);
	CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 1) == EOPNOTSUPP);
	CHECK(ibv_query_device(context, NULL) == EINVAL);

	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
	CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 0) == 0);
	CHECK(memcmp(&gid, &entry.gid, sizeof gid) == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
	CHECK(ibv_query_gid_type(context, 1, 0, &type) == 0 && type == 1);
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
	CHECK(ibv_get_pkey_index(context, 1, 0xffff) == 0);
	FAILS(ibv_get_pkey_index(context, 1, 0x1234), -1, EINVAL);
	CHECK(___ibv_query_port(context, 1, &port) == 0);
	CHECK(port.gid_tbl_len == 1 && port.pkey_tbl_len == 1 && port.lid == 0);
	CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(port.max_msg_sz == 1u << 30);
	CHECK(ibv_query_device(context, &device) == 0);
	CHECK(device.phys_port_cnt == 1 && device.vendor_id == 0 && device.atomic_cap == IBV_ATOMIC_HCA);
	CHECK(device.max_srq == 0 && device.max_mw == 0 && device.max_ah == 0);
}

static void regions(struct ibv_pd *pd)
{
	struct ibv_mr *mr;
	int i;

	FAILS(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_REMOTE_WRITE), NULL, EINVAL);
	FAILS(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_REMOTE_ATOMIC), NULL, EINVAL);
	FAILS(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_ON_DEMAND), NULL, EOPNOTSUPP);
	FAILS(ibv_reg_mr(pd, memory, sizeof memory, INT_MIN), NULL, EOPNOTSUPP);
	CHECK((mr = ibv_reg_mr(pd, memory, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE)) == NULL && errno != 0);
	/* Hints change nothing, whether known or not. */
	for (i = 20; i < 30; i++) {
		CHECK((mr = ibv_reg_mr_iova2(pd, memory, sizeof memory, 0x1000, 1 | 1u << i)) != NULL);
		if (!mr)
			continue;
		CHECK(mr->addr == memory && mr->length == sizeof memory && mr->lkey == mr->rkey);
		CHECK(ibv_dereg_mr(mr) == 0);
	}
	NEED(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void queues(struct ibv_context *context, struct ibv_pd *pd)
{
	static const int sizes[] = { 0, -1, INT_MIN, INT_MAX };
	static const int types[] = { IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, 0, 99 };
	struct ibv_comp_channel *channel;
	struct ibv_qp_init_attr init, good;
	struct ibv_cq_init_attr_ex ex;
	uint32_t *caps = &init.cap.max_send_wr;
	struct ibv_cq *cq, *found;
	struct ibv_srq srq = { .context = context };
	struct ibv_qp *qp;
	struct ibv_wc wc;
	void *cookie;
	size_t i;

	for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
		FAILS(ibv_create_cq(context, sizes[i], NULL, NULL, 0), NULL, EINVAL);
	FAILS(ibv_create_cq(context, 1, NULL, NULL, -1), NULL, EINVAL);
	FAILS(ibv_create_cq(context, 1, NULL, NULL, 1), NULL, EINVAL);
	memset(&ex, 0, sizeof ex);
	ex.cqe = 4;
	ex.wc_flags = IBV_WC_EX_WITH_TM_INFO;
	FAILS(ibv_create_cq_ex(context, &ex), NULL, EOPNOTSUPP);
	ex.wc_flags = 0;
	ex.comp_mask = 1u << 31;
	FAILS(ibv_create_cq_ex(context, &ex), NULL, EOPNOTSUPP);

	NEED(channel = ibv_create_comp_channel(context));
	NEED(cq = ibv_create_cq(context, 10, memory, channel, 0));
	CHECK(cq->cqe >= 10 && cq->channel == channel && channel->refcnt == 1);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(ibv_get_cq_event(channel, &found, &cookie), -1, EAGAIN);
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0 && ibv_poll_cq(cq, 0, NULL) == 0);
	CHECK(ibv_poll_cq(cq, -1, &wc) < 0 && ibv_poll_cq(cq, 1, NULL) < 0);

	memset(&good, 0, sizeof good);
	good.qp_type = IBV_QPT_RC;
	good.send_cq = good.recv_cq = cq;
	good.cap = (struct ibv_qp_cap){ 4, 4, 2, 2, 16 };
	FAILS(ibv_create_qp(pd, NULL), NULL, EINVAL);
	for (i = 0; i < sizeof types / sizeof *types; i++) {
		init = good;
		init.qp_type = types[i];
		FAILS(ibv_create_qp(pd, &init), NULL, EOPNOTSUPP);
	}
	init = good;
	init.srq = &srq;
	FAILS(ibv_create_qp(pd, &init), NULL, EOPNOTSUPP);
	init = good;
	init.recv_cq = NULL;
	FAILS(ibv_create_qp(pd, &init), NULL, EINVAL);
	/* Sizes near the ends of 32 bits overflowed a check in a kernel driver (irdma). */
	for (i = 0; i < 5; i++) {
		init = good;
		caps[i] = 1u << 31;
		FAILS(ibv_create_qp(pd, &init), NULL, EINVAL);
		init = good;
		caps[i] = UINT32_MAX;
		FAILS(ibv_create_qp(pd, &init), NULL, EINVAL);
	}
	init = good;
	NEED(qp = ibv_create_qp(pd, &init));
	CHECK(init.cap.max_send_wr >= 4 && init.cap.max_recv_sge >= 2 && init.cap.max_inline_data >= 16);
	CHECK(qp->state == IBV_QPS_RESET && qp->qp_num > 1 && qp->qp_num < 0xffffff);
	CHECK(ibv_destroy_cq(cq) == EBUSY);
	FAILS(ibv_qp_to_qp_ex(qp), NULL, EINVAL);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(channel->refcnt == 0 && ibv_destroy_comp_channel(channel) == 0);
}

static void posts(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 2, 2, 16 } };
	struct ibv_sge sges[3] = { { (uintptr_t)memory, 8, 1 }, { (uintptr_t)memory, 8, 1 } };
	struct ibv_send_wr good = { .sg_list = sges, .num_sge = 1, .opcode = IBV_WR_SEND }, wr = good, *bad;
	struct ibv_recv_wr recv = { .sg_list = sges, .num_sge = 1 }, *bad_recv;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	NEED(cq = ibv_create_cq(context, 10, NULL, NULL, 0));
	init.send_cq = init.recv_cq = cq;
	NEED(qp = ibv_create_qp(pd, &init));
	bad = NULL;
	bad_recv = NULL;
	CHECK(ibv_post_send(qp, NULL, &bad) == 0 && bad == NULL);
	CHECK(ibv_post_recv(qp, NULL, &bad_recv) == 0 && bad_recv == NULL);
	/* Some drivers accepted receives in RESET (rdma-core PR 1139). */
	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == EINVAL && bad_recv == &recv);
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);

	CHECK(ibv_modify_qp(qp, NULL, IBV_QP_STATE) == EINVAL);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT) == EOPNOTSUPP);
	CHECK(ibv_modify_qp(qp, &attr, -1) == EOPNOTSUPP);
	CHECK(qp->state == IBV_QPS_RESET);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	CHECK(qp->state == IBV_QPS_INIT);
	/* An InfiniBand address, without a GID: refused, with one line of advice, once. */
	attr.qp_state = IBV_QPS_RTR;
	attr.ah_attr.dlid = 1;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV) == EINVAL);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV) == EINVAL);
	CHECK(qp->state == IBV_QPS_INIT);
	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == 0);
	recv.num_sge = -1;
	bad_recv = NULL;
	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == EINVAL && bad_recv == &recv);
	recv.num_sge = INT_MAX;
	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == EINVAL);
	CHECK(ibv_post_recv(qp, &recv, NULL) == EINVAL);
	recv.num_sge = 1;
	recv.sg_list = NULL;
	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == EINVAL);

	/* In the error state sends are taken, and flushed, unless malformed. */
	attr.qp_state = IBV_QPS_ERR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
#define REFUSED(why, ...)                                                                          \
	do {                                                                                       \
		wr = good;                                                                         \
		__VA_ARGS__;                                                                       \
		bad = NULL;                                                                        \
		CHECK(ibv_post_send(qp, &wr, &bad) == (why) && bad == &wr);                        \
	} while (0)
	REFUSED(EINVAL, wr.num_sge = -1);
	REFUSED(EINVAL, wr.num_sge = INT_MIN);
	REFUSED(EINVAL, wr.num_sge = 1000);
	REFUSED(EINVAL, wr.sg_list = NULL);
	REFUSED(EINVAL, wr.opcode = 999);
	REFUSED(EINVAL, wr.opcode = -1);
	REFUSED(EOPNOTSUPP, wr.opcode = IBV_WR_LOCAL_INV);
	REFUSED(EOPNOTSUPP, wr.opcode = IBV_WR_BIND_MW);
	REFUSED(EOPNOTSUPP, wr.opcode = IBV_WR_SEND_WITH_INV);
	REFUSED(EOPNOTSUPP, wr.opcode = IBV_WR_TSO);
	REFUSED(EINVAL, wr.send_flags = 1u << 31);
	REFUSED(EINVAL, wr.opcode = IBV_WR_RDMA_READ, wr.send_flags = IBV_SEND_INLINE);
	/* Inline lengths that wrap around 32 bits (rdma-core PR 1752), or fit one by one but not together. */
	sges[0].length = 0xfffffff0;
	sges[1].length = 0x20;
	REFUSED(EINVAL, wr.num_sge = 2, wr.send_flags = IBV_SEND_INLINE);
	sges[0].length = sges[1].length = init.cap.max_inline_data / 2 + 1;
	REFUSED(EINVAL, wr.num_sge = 2, wr.send_flags = IBV_SEND_INLINE);
	sges[0].length = 0;
	wr = good;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	wr.num_sge = 0;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
}

static void unsupported(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_srq_attr srq_attr = { 1, 2, 3 };
	struct ibv_srq_init_attr srq = { .attr = { 1, 1, 0 } };
	struct ibv_ah_attr ah = { .port_num = 1 };
	struct ibv_ece ece = { 1, 2, 3 };
	char text[8] = "abc";
	struct ibv_wc wc = { 0 };

	FAILS(ibv_create_srq(pd, &srq), NULL, EOPNOTSUPP);
	CHECK(ibv_query_srq(NULL, &srq_attr) == EOPNOTSUPP && all_bytes(&srq_attr, sizeof srq_attr, 0));
	FAILS(ibv_create_ah(pd, &ah), NULL, EOPNOTSUPP);
	memset(&ah, 1, sizeof ah);
	FAILS(ibv_init_ah_from_wc(context, 1, &wc, NULL, &ah), -1, EOPNOTSUPP);
	CHECK(all_bytes(&ah, sizeof ah, 0));
	CHECK(ibv_query_ece(NULL, &ece) == EOPNOTSUPP && all_bytes(&ece, sizeof ece, 0));
	CHECK(ibv_set_ece(NULL, &ece) == EOPNOTSUPP);
	CHECK(ibv_attach_mcast(NULL, NULL, 0) == EOPNOTSUPP);
	CHECK(ibv_resize_cq(NULL, 1) == EOPNOTSUPP);
	FAILS(ibv_import_device(0), NULL, EOPNOTSUPP);
	FAILS(ibv_reg_dmabuf_mr(pd, 0, 1, 0, 0, 0), NULL, EOPNOTSUPP);
	FAILS(ibv_alloc_mw(pd, IBV_MW_TYPE_1), NULL, EOPNOTSUPP);
	FAILS(ibv_open_xrcd(context, NULL), NULL, EOPNOTSUPP);
	FAILS(ibv_alloc_td(context, NULL), NULL, EOPNOTSUPP);
	FAILS(ibv_alloc_dm(context, NULL), NULL, EOPNOTSUPP);
	CHECK(ibv_advise_mr(pd, 0, 0, NULL, 0) == EOPNOTSUPP);
	CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	CHECK(strcmp(ibv_get_sysfs_path(), "/sys") == 0);
	FAILS(ibv_read_sysfs_file("/sys", "board_id", text, sizeof text), -1, ENOENT);
	CHECK(text[0] == 0);
}

/* A filter library's functions are those of libibverbs.so.1, also when it is opened by hand. */
static void filters(void)
{
	void *mlx5, *rdmacm;
	int (*supported)(struct ibv_device *);
	struct ibv_context **(*devices)(int *);
	int number = 99;

	NEED(mlx5 = dlopen("libmlx5.so", RTLD_NOW));
	NEED(supported = (int (*)(struct ibv_device *))dlvsym(mlx5, "mlx5dv_is_supported", "MLX5_1.8"));
	CHECK(supported(NULL) == 0);
	NEED(rdmacm = dlopen("librdmacm.so.1", RTLD_NOW));
	NEED(devices = (struct ibv_context **(*)(int *))dlvsym(rdmacm, "rdma_get_devices", "RDMACM_1.0"));
	/* Left unset, the number crashed libfabric. */
	FAILS(devices(&number), NULL, ENODEV);
	CHECK(number == 0);
}

int main(void)
{
	struct ibv_context *context;
	struct ibv_device **list;
	struct ibv_pd *pd;
	int number = -1;

	null_handles();
	NEED(list = ibv_get_device_list(&number));
	NEED(number == 1); NEED(list[0] && !list[1]);
	CHECK(strcmp(ibv_get_device_name(list[0]), "stellar0") == 0);
	CHECK(ibv_get_device_index(list[0]) == 0 && ibv_get_device_guid(list[0]) != 0);
	/* A device outlives its list. */
	struct ibv_device *device = list[0];
	ibv_free_device_list(list);
	NEED(context = ibv_open_device(device));
	NEED(pd = ibv_alloc_pd(context));
	tables(context);
	no_byte_too_many(context);
	regions(pd);
	queues(context, pd);
	posts(context, pd);
	unsupported(context, pd);
	filters();
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	return failures != 0;
}
