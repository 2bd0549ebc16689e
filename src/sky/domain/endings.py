"""Which facts may still be written where there is no room left for anything else.

Decides: what counts as an end: something is given back, or is over, or goes on being known to be wanted.
Never: counts what is only told by silence: where nobody's word can be written down, silence tells nothing.
Follows: on a full disk spending can be stopped, what is over is known, and nothing new begins.
"""

from __future__ import annotations

from sky.domain import account, cluster, cluster_job, compute, job, node, request, task
from sky.domain.lifecycle import Fact

ENDS: frozenset[type[Fact]] = frozenset(
    {
        compute.ComputeDeleting,
        compute.DeletionFailed,
        compute.StraysTerminated,
        compute.ComputeDeleted,
        compute.LeaseReleased,
        node.NodeUnwanted,
        node.NodeDraining,
        node.NodeRecalled,
        node.NodeDeleting,
        node.NodeDeletionFailed,
        node.NodeDeleted,
        task.TaskCancelRequested,
        task.TaskSucceeded,
        task.TaskFailed,
        task.TaskCancelled,
        task.TaskTimedOut,
        task.ExecutionCancelRequested,
        task.ExecutionSucceeded,
        task.ExecutionFailed,
        task.ExecutionCancelled,
        task.ExecutionTimedOut,
        account.AccountSuspended,
        account.AccountClosed,
        job.JobStopping,
        job.JobRan,
        job.JobSucceeded,
        job.JobFailed,
        job.JobInterrupted,
        job.JobCancelled,
        job.JobSettled,
        request.RequestSucceeded,
        request.RequestFailed,
        request.RequestCancelled,
        cluster.ClusterStopping,
        cluster.ClusterStopped,
        cluster.ClusterDown,
        cluster_job.JobStopAsked,
        cluster_job.JobSucceeded,
        cluster_job.JobFailed,
        cluster_job.JobFailedSetup,
        cluster_job.JobFailedDriver,
        cluster_job.JobCancelled,
    }
)

KEPT_ALIVE: frozenset[type[Fact]] = frozenset(
    {
        compute.LeaseRenewed,
        cluster.ClusterUsed,
        job.JobExtended,
        job.JobExhausted,
        request.RequestStarted,
        request.RequestWaiting,
        request.RequestResumed,
    }
)
"""Without these something would be ended that nobody wants to end, or who asked for an end would wait."""
