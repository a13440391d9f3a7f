//! Pods leave a node with a `NoExecute` taint that they do not tolerate, or no longer tolerate.
//!
//! Implements: Taints and Tolerations, "Taint based Evictions", as the taint-eviction-controller of kube-controller-manager does it: a
//! pod leaves at once, or after the shortest `tolerationSeconds` of the tolerations that apply, counted from when the
//! controller saw the taint; a taint that goes before cancels it.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions>
//!
//! Leaves to others: the taints of nodes that are lost; nothing in this program adds them.

mod apply;
pub mod plan;

pub use self::apply::run;
