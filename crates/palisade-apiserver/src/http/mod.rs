//!
//! Leaves to others: who the user is (`auth`), and what is done about it (`verbs`).

pub mod body;
pub(crate) mod compress;
pub mod negotiate;
pub mod protobuf;
pub mod query;
pub mod reply;
pub mod request_info;
pub mod tls;
pub mod warning;

pub use body::Body;
pub use query::Query;
pub use reply::Reply;
pub use request_info::RequestInfo;
