//! What each instruction does to a wave: ALU, matrix units, cross-lane moves.
