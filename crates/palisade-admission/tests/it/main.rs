//! Black-box tests of admission.
