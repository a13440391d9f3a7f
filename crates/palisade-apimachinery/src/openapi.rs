//! OpenAPI v2 and v3.
