//! Pages and sources as texts.
//!
//! Add a test here if it reads files of this repository: a page that must agree with the code, or a rule about the shape
//! of the code, such as its imports and the lengths of files and functions.

mod docs;
mod layers;
mod numbers;
mod shape;
mod tables;
