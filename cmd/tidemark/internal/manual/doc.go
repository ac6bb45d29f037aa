// Package manual writes manual pages from commands: the text of --help, formatted for man.
//
// It writes roff itself, and not through Markdown as cobra's package does: the texts of the
// commands are plain, and their indented lines must be kept.
package manual
