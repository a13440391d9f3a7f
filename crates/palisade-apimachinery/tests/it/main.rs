//! Black-box tests of the object machinery.

mod recordings;
mod replay;
