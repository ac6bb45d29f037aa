// Package demo has the additional functions of the web console in `tidemark demo`: buttons that
// stop, isolate, restart and add servers (Buttons), and a load whose operations are counted
// meanwhile (load).
//
// A Buttons owns the load's goroutines. Close stops them. The lock of Buttons is held while a load
// starts or stops. No lock of the cluster is held at that time.
package demo
