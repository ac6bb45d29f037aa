// Package read serves the reads of a partition. A Reader takes a read into a proved leadership,
// places it between the writes, lets it wait for writes in flight and for locks, and reads the
// engine; reader.go says why in this order. Any replica serves reads at closed timestamps, and
// reads that a leader has admitted (closed_read.go, admission.go). Multi reads several partitions
// of a node in one request.
//
// machine.Machine.Mu guards what waits here. A read that waits for an entry is a machine.Waiter.
package read
