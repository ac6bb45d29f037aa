// Package prompt reads lines of a script or of a user at a terminal, with a history.
package prompt
