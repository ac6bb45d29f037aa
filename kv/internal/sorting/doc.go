// Package sorting sorts records by key, in bounded memory, for a bulk load.
//
// Records are kept one after the other in large pieces of memory; the sorted elements are short
// entries that point to them, with the first bytes of the key. When the memory is full, its records
// are sorted and appended to one temporary file, as a run. In the end the runs are merged. Input
// that comes in order is recognised, and costs no sort; runs that follow each other are merged by
// comparing only their first keys.
//
// Of equal keys the one that was added last stays.
//
// A sorter can also be a queue, from which the lowest records are taken while others are added
// (Sorter.Take); a change feed uses it so.
//
// The file loses its name as soon as it is open, where the system allows that: a process that is
// killed leaves no file behind.
package sorting
