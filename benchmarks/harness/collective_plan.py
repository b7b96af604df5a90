"""What is compared in the all-reduce: sizes, libraries, how each is set, and the targets.

Every library runs in several modes, its own algorithms and settings; the best of them at a size is
what counts there. Settings are environment variables, as its users would give them.
"""

import dataclasses

K, M = 1 << 10, 1 << 20
RANKS = (2, 4)
SIZES = (4, K, 64 * K, 256 * K, M, 4 * M, 16 * M, 64 * M, 256 * M)
SMALL = K          # up to here times are compared, above rates
TCP_FROM = M       # the smallest size that is compared over tcp alone
BOUND_FROM = 16 * M
SCOUTED = 64 * M   # up to here every mode of a library is tried
BOUND_SHARE = 0.75
TCP_TARGET = 1.3
# Two ranks beside one process that computes all the time, on the same cores.
BUSY_SIZE = 64 * K
BUSY_LIMIT_US = 40
ORDINARY_TARGET = 1.0


def rate_target(ranks, size):
    """At least this many times the best peer's rate; None where nothing was promised."""
    if size < 64 * K or ranks not in RANKS:
        return None
    if ranks == 2:
        return 1.6 if M < size <= 4 * M else 2.5 if size > 16 * M else 2.0
    return 1.3 if size <= M else 1.5 if size <= 4 * M else 2.0


def time_limit(ranks, best_us):
    """A small all-reduce may take this long."""
    return max(0.6, 1.2 * best_us) if ranks == 2 else 2 * best_us


@dataclasses.dataclass(frozen=True)
class Mode:
    label: str
    environment: tuple = ()
    in_place: bool = True  # or from one array into another


@dataclasses.dataclass(frozen=True)
class Peer:
    key: str
    label: str
    modes: tuple
    always: tuple = ()   # environment of every mode
    crowded: tuple = ()  # and of jobs with more ranks than cores


def _tuned(number):
    return (("OMPI_MCA_coll_tuned_use_dynamic_rules", "1"),
            ("OMPI_MCA_coll_tuned_allreduce_algorithm", str(number)))


def _intel(label, number, *more):
    return Mode(label, (("I_MPI_ADJUST_ALLREDUCE", str(number)), *more))


def _oneccl(label, algorithm, *more):
    return Mode(label, (("CCL_ALLREDUCE", algorithm), ("CCL_ATL_TRANSPORT", "mpi"), *more))


PEERS = (
    Peer("openmpi", "Open MPI", (
        Mode("as it comes"),
        Mode("two arrays", in_place=False),
        Mode("recursive doubling", _tuned(3)),
        Mode("ring", _tuned(4)),
        Mode("segmented ring", _tuned(5)),
        Mode("Rabenseifner", _tuned(6)),
        Mode("without CMA", (("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),)),
    ), always=(("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")),
        crowded=(("OMPI_MCA_mpi_yield_when_idle", "1"),)),
    Peer("mpich", "MPICH", (
        Mode("as it comes"),
        Mode("two arrays", in_place=False),
        Mode("recursive doubling",
             (("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "recursive_doubling"),)),
        Mode("reduce-scatter, all-gather",
             (("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "reduce_scatter_allgather"),)),
        Mode("release-gather",
             (("MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM", "release_gather"),)),
    )),
    Peer("intelmpi", "Intel MPI", (
        Mode("as it comes"),
        Mode("two arrays", in_place=False),
        Mode("shared heap", (("I_MPI_SHM_HEAP_VSIZE", "2048"), ("I_MPI_SHM_HEAP", "1"))),
        _intel("recursive doubling", 1),
        _intel("Rabenseifner", 2),
        _intel("ring", 8),
        _intel("Shumilin's ring", 7),
        _intel("flat in shared memory", 10),
        _intel("k-nomial in shared memory", 11),
        _intel("k-ary in shared memory", 12),
        Mode("sched_yield", (("I_MPI_THREAD_YIELD", "2"),)),
    ), always=(("I_MPI_FABRICS", "shm"),),
        crowded=(("I_MPI_PIN", "0"), ("I_MPI_THREAD_YIELD", "3"))),
    Peer("oneccl", "oneCCL", (
        _oneccl("direct", "direct"),
        _oneccl("ring", "ring"),
        _oneccl("Rabenseifner", "rabenseifner"),
        _oneccl("n-reduce", "nreduce"),
        _oneccl("recursive doubling", "recursive_doubling"),
        _oneccl("direct, worker thread", "direct", ("CCL_WORKER_OFFLOAD", "1"),
                ("CCL_YIELD", "sleep")),
    ), always=(("I_MPI_FABRICS", "shm"), ("CCL_WORKER_OFFLOAD", "0"), ("CCL_LOG_LEVEL", "error")),
        crowded=(("I_MPI_PIN", "0"), ("I_MPI_THREAD_YIELD", "3"))),
    Peer("gloo", "Gloo", tuple(
        Mode(name, (("TUTTI_GLOO_ALGORITHM", name),))
        for name in ("ring", "bcube", "halving-doubling", "ring-chunked"))),
)

# Who runs beside a busy process, in the mode it chooses and in one in which waiting ranks give way.
BUSY_MODES = {"openmpi": (Mode("as it comes"), Mode("yielding", (("OMPI_MCA_mpi_yield_when_idle", "1"),))),
              "mpich": (Mode("as it comes"),),
              "intelmpi": (Mode("as it comes"), Mode("yielding", (("I_MPI_THREAD_YIELD", "3"),)))}
