//! Kubernetes primitives that every other crate may use, each written once. No IO, no clock, no logging.
//!
//! | module | upstream |
//! | --- | --- |
//! | [`version`] | releases of Kubernetes, as an API server and a kubelet report them |
//! | [`field_path`], [`field_error`] | `k8s.io/apimachinery/pkg/util/validation/field` |
//! | [`cron`] | cron schedules as `github.com/robfig/cron/v3` reads them |
//! | [`go`] | how Go prints strings and JSON |
//! | [`label_selector`] | `k8s.io/apimachinery/pkg/labels` and `metav1.LabelSelector` |
//! | [`quantity`] | `k8s.io/apimachinery/pkg/api/resource` |
//! | [`scheduling`] | `k8s.io/component-helpers`: tolerations, node affinity, resource requests, host ports |
//! | [`time`] | `metav1.Time`, `metav1.MicroTime`, ages |
//! | [`sha256`] | SHA-256 as lower-case hexadecimal |
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod causes;
pub mod cron;
pub mod field_error;
pub mod field_path;
pub mod go;
pub mod label_selector;
pub mod metrics;
pub mod quantity;
pub mod scheduling;
pub mod sha256;
pub mod time;
pub mod version;
