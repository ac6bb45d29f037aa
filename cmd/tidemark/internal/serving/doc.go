// Package serving is what a process needs that is a server: its log, its clock, the rights of its
// files.
package serving
