// Package manual writes manual pages from commands: what --help says, in the form that man reads.
//
// It writes roff itself instead of going through Markdown, as cobra's own package does: the texts
// of the commands are plain, and a line of theirs that begins with spaces stays a line.
package manual
