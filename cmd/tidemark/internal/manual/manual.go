package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page is one manual page of section 1.
type Page struct {
	File string // its name, such as tidemark-keyspace-create.1
	Text string
}

// Pages returns the pages of a command and of all its subcommands, except hidden ones. version is
// printed in the footer of each.
func Pages(root *cobra.Command, version string) []Page {
	var pages []Page
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		pages = append(pages, Page{File: Name(cmd) + ".1", Text: page(cmd, version)})
		for _, sub := range below(cmd) {
			add(sub)
		}
	}
	add(root)
	return pages
}

// Name returns the name of a command's page: tidemark-keyspace-create.
func Name(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// below returns the commands and help topics that a command's page lists.
func below(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(sub *cobra.Command) bool {
		return !sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand()
	})
}

func page(cmd *cobra.Command, version string) string {
	cmd.InitDefaultHelpFlag()
	w := &roff{}
	w.request("TH", strings.ToUpper(Name(cmd)), "1", "", "tidemark "+version, "Tidemark")
	w.request("SH", "NAME")
	w.line(escape(Name(cmd)) + ` \- ` + escape(cmd.Short))
	if cmd.Runnable() {
		w.request("SH", "SYNOPSIS")
		w.request("B", cmd.UseLine())
	}
	w.request("SH", "DESCRIPTION")
	w.prose(description(cmd))
	w.commands(cmd)
	w.options("OPTIONS", cmd.NonInheritedFlags())
	w.options("OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		w.request("SH", "EXAMPLES")
		w.literal(strings.Trim(cmd.Example, "\n"))
	}
	if cmd.Runnable() && cmd.Root() != cmd {
		w.request("SH", "EXIT STATUS")
		w.prose("0 if it did what it was asked to; the other codes are in " +
			cmd.Root().Name() + "-exit-codes(1).")
	}
	if cmd.HasParent() {
		w.request("SH", "SEE ALSO")
		w.prose(Name(cmd.Parent()) + "(1)")
	}
	return w.text.String()
}

// description returns the texts of a command.
func description(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}

type roff struct{ text strings.Builder }

func (w *roff) line(text string) { w.text.WriteString(text + "\n") }

// request writes a roff request with its arguments, each of which is plain text.
func (w *roff) request(name string, arguments ...string) {
	quoted := make([]string, 0, 1+len(arguments))
	for _, argument := range arguments {
		quoted = append(quoted, `"`+strings.ReplaceAll(escape(argument), `"`, `""`)+`"`)
	}
	w.line(strings.Join(slices.Insert(quoted, 0, "."+name), " "))
}

// prose writes text in paragraphs, which are separated by empty lines. A paragraph with columns or
// indented lines is kept as it is.
func (w *roff) prose(text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			w.request("PP")
		}
		switch {
		case arranged(paragraph):
			w.literal(paragraph)
		default:
			w.plain(paragraph)
		}
	}
}

func arranged(paragraph string) bool {
	for line := range strings.Lines(paragraph) {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") ||
			strings.Contains(line, "   ") {
			return true
		}
	}
	return false
}

// literal writes text and keeps its lines.
func (w *roff) literal(text string) {
	w.request("nf")
	w.plain(strings.ReplaceAll(text, "\t", "    "))
	w.request("fi")
}

// plain writes text without requests.
func (w *roff) plain(text string) {
	for line := range strings.Lines(text) {
		line = escape(strings.TrimRight(line, " \n"))
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		w.line(line)
	}
}

// escape returns text in which no character is special. A minus can still be pasted into a shell.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, "`", "\\(ga", `^`, `\(ha`, `~`, `\(ti`,
		`'`, `\(aq`).Replace(text)
}

// commands lists the subcommands by their groups.
func (w *roff) commands(cmd *cobra.Command) {
	all := below(cmd)
	list := func(title, group string) {
		began := false
		for _, sub := range all {
			if sub.GroupID != group {
				continue
			}
			if !began {
				w.request("SH", strings.ToUpper(strings.TrimSuffix(title, ":")))
				began = true
			}
			w.request("TP")
			w.request("B", strings.TrimPrefix(sub.CommandPath(), cmd.Root().Name()+" "))
			w.plain(sub.Short + ": " + Name(sub) + "(1)")
		}
	}
	for _, group := range cmd.Groups() {
		list(group.Title, group.ID)
	}
	if len(cmd.Groups()) > 0 {
		list("MORE COMMANDS", "")
		return
	}
	list("COMMANDS", "")
}

func (w *roff) options(title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	w.request("SH", title)
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(flag)
		w.request("TP")
		w.line(head(flag, value))
		if text := standard(flag); text != "" {
			usage += " (default " + text + ")"
		}
		w.plain(usage)
	})
}

// head returns a flag as it is typed.
func head(flag *pflag.Flag, value string) string {
	text := `\fB\-\-` + escape(flag.Name) + `\fR`
	if flag.Shorthand != "" {
		text = `\fB\-` + flag.Shorthand + `\fR, ` + text
	}
	if value != "" {
		text += ` \fI` + escape(value) + `\fR`
	}
	return text
}

// standard returns the default of a flag. It is empty if there is none, or if the flag's text names
// it.
func standard(flag *pflag.Flag) string {
	switch flag.DefValue {
	case "", "0", "0s", "0B", "false", "[]", "<nil>":
		return ""
	}
	if strings.Contains(flag.Usage, "(default") {
		return ""
	}
	if flag.Value.Type() == "string" {
		return fmt.Sprintf("%q", flag.DefValue)
	}
	return flag.DefValue
}
