// Package manual writes manual pages from commands: the text of --help, formatted for man.
//
// It writes roff itself. Cobra's own package goes through Markdown, which joins lines that begin
// with up to three spaces. Many texts of commands have such lines: tables and examples.
package manual
