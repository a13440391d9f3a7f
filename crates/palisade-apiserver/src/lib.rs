//! How does kubectl see it? An embedded Kubernetes API server: storage, watch, REST, authentication, authorisation.
//!
//! Implements: Kubernetes API Concepts. <https://kubernetes.io/docs/reference/using-api/api-concepts/>

pub mod storage;
