//! Black-box tests of the model.
