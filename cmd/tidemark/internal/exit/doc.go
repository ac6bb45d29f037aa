// Package exit is how the program ends: the exit codes, and the text of an error as it is printed.
package exit
