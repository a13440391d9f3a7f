//! CronJobs: a Job whenever a schedule says so.
//!
//! Implements: CronJob, <https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/>.

mod apply;
pub mod plan;
pub mod schedule;

pub use self::apply::run;
