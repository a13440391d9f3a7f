//! Black-box tests of the policies.
