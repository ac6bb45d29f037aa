//go:build !cgo

package memory

// TablesOutsideGo says that Pebble allocates block caches and memtables in C: Go's garbage
// collector does not count them.
const TablesOutsideGo = false
