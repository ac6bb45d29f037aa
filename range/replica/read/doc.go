// Package read serves the reads of a partition. A Reader admits a read into a leadership that is
// proved, places it between the writes, has it wait for what is in flight or locked, and reads the
// engine; read.go says why in this order. Reads of what is closed, and of what a leader has
// admitted, are served by any replica (closed_read.go, admission.go). Multi reads several
// partitions of a node in one request.
//
// machine.Machine.Mu guards what waits here. A read that waits for an entry is a machine.Waiter.
package read
