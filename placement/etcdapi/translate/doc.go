// Package translate turns requests of the etcd API into commands and readings of the store, and the
// store's results and errors into etcd's answers. It has no state.
//
// A request is checked first (check.go), as etcd checks it; the functions To... rely on that. The
// functions From... make answers. Error finds the error that etcd answers in the same case.
package translate
