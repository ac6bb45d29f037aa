// Package golden compares what encoders write with files that hold what they wrote in each release.
// It is for tests only.
//
// A package with a format on disk or on the wire has a test with one call of Check. The files lie
// in the package's testdata/golden, in a folder for each level (package rpc/release). Check runs
// the encoder at every level, and has every file decoded.
//
// A file of the newest level that is not there yet is written with the build tag golden (`make
// golden`). A file that is there is never written again: the bytes of a release do not change. So a
// format can be changed in one way only: the encoder asks a gate, which is open from the next level
// on, and the new bytes go into the next level's file.
//
// The messages of protocol buffers are compared by their descriptors (descriptors_test.go).
package golden
