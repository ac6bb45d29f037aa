// Package sorting brings records into the order of their keys, in bounded memory, as a bulk load
// needs them.
//
// Records are kept one behind another in large pieces of memory, and what is sorted are short
// entries that point to them, with the first bytes of the key. When the memory is full, what there
// is goes sorted to the end of one temporary file: a run. In the end the runs are merged. Input
// that came in order is noticed, and costs no sort; runs that follow each other are merged without
// a comparison of more than their first keys.
//
// Of equal keys the one that was added last stays.
//
// A sorter can also be a queue, from which the lowest records are taken while others are added
// (Sorter.Take), as a change feed needs it.
//
// The file has no name as soon as it is open, where the system allows that: a process that is
// killed leaves nothing behind.
package sorting
