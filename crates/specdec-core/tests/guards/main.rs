//! The guards as a whole: every message word for word, and what random changes may not get past them.

mod caches;
mod checked;
mod metadata;
mod mla;
mod model;
mod weights;
