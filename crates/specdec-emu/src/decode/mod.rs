//! Bytes of a text section to [`crate::inst::Inst`], and back to the text that LLVM prints.
