// Package serving has the parts of a server's process: its log, its clock, and the permissions of
// its files.
package serving
