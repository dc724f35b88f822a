//! Volumes on real file systems.
