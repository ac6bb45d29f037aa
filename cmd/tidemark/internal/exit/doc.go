// Package exit defines how the program ends: exit codes, and the printed text of errors.
package exit
