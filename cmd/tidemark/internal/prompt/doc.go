// Package prompt reads lines: of a script, and of a person, whose earlier lines it keeps.
package prompt
