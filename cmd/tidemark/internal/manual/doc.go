// Package manual writes manual pages from commands: the text of --help, formatted for man.
//
// It writes roff itself, in 219 lines, instead of going through Markdown, as cobra's own package
// does. Markdown would join lines that begin with up to three spaces, of which 71 of the 155 texts
// of commands have some: tables and examples.
package manual
