/* A child of fork: it may write beside registered memory (MADV_DONTFORK of whole pages broke programs, rdma-core
 * PR 1129), what it does with inherited objects ends in errors, and the parent goes on undisturbed. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static struct ibv_wc write_once(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, char *memory)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)memory + 32, mr->rkey },
	}, *bad;

	NEED(ibv_post_send(qp, &wr, &bad) == 0);
	return next_completion(cq);
}

static int child(struct ibv_qp *qp, struct ibv_cq *cq, char *memory)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_wc wc;

	/* The other half of the page is nobody's but the program's. */
	memset(memory + 2048, 1, 2048);
	CHECK(ibv_post_send(qp, &wr, &bad) != 0 && bad == &wr);
	CHECK(ibv_poll_cq(cq, 1, &wc) <= 0);
	return failures != 0;
}

int main(void)
{
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct end a, b;
	char *memory;
	int status, i;
	pid_t pid;

	NEED(ibv_fork_init() == 0);
	context = open_first();
	NEED((memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	NEED(pd = ibv_alloc_pd(context));
	NEED(mr = ibv_reg_mr(pd, memory, 2048, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	NEED(cq = ibv_create_cq(context, 8, NULL, NULL, 0));
	a = end_on(pd, cq);
	b = end_on(pd, cq);
	connect_to(a.qp, b.qp->qp_num);
	connect_to(b.qp, a.qp->qp_num);
	CHECK(write_once(a.qp, cq, mr, memory).status == IBV_WC_SUCCESS);
	for (i = 0; i < 3; i++) {
		NEED((pid = fork()) >= 0);
		if (pid == 0)
			_exit(child(a.qp, cq, memory));
		NEED(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		CHECK(write_once(a.qp, cq, mr, memory).status == IBV_WC_SUCCESS);
	}
	/* Programs leave without removing anything, too. */
	return failures != 0;
}
