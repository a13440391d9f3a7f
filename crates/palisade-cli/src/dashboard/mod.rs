//! The page of `palisade dashboard`: one document, made on the server, without scripts.
//!
//! Every text that comes from the cluster is hostile input. It is written only through [`Html::text`](crate::html::Html::text), which escapes it, and
//! the policy in [`serve`] forbids scripts, forms, frames and every other origin, so that a mistake here could not run anything.

pub mod page;
pub mod serve;
