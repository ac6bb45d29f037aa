//go:build cgo

package memory

// TablesOutsideGo reports whether Pebble allocates block caches and memtables in C, where Go's
// garbage collector does not count them. With cgo it does.
const TablesOutsideGo = true
