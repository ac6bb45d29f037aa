package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/prompt"
)

// screenKeys is a terminal that delivers each key as it is pressed.
type screenKeys struct {
	io.ReadWriter
	// raw makes the terminal deliver keys, until restore is called.
	raw func() (restore func(), err error)
	// size returns the size of the terminal. It is zero if the size is not known.
	size func() (width, height int)
}

// maxPromptLine is the maximum number of characters in a line of the prompt. It is a limit of the
// terminal package.
const maxPromptLine = 4096

const (
	keyTab   = '\t'
	keyCtrlC = 3
)

// keyWatch records Ctrl-C, because the line editor reports Ctrl-C as the end of the input.
type keyWatch struct {
	io.ReadWriter
	interrupted bool
}

// Read implements io.Reader.
func (w *keyWatch) Read(b []byte) (int, error) {
	n, err := w.ReadWriter.Read(b)
	w.interrupted = w.interrupted || bytes.IndexByte(b[:n], keyCtrlC) >= 0
	return n, err
}

// errInterrupted means that the user pressed Ctrl-C at the prompt.
var errInterrupted = errors.New("interrupted")

// editedLines yields the lines that are typed, with arrows, history and completion. It ends as
// readLines does.
func (s *txnSession) editedLines(ctx context.Context, keys *screenKeys,
	kept *prompt.History) iter.Seq[prompt.Line] {
	watch := &keyWatch{ReadWriter: keys}
	terminal := term.NewTerminal(watch, "")
	terminal.History = kept
	complete := &completer{session: s, ctx: ctx, screen: terminal}
	terminal.AutoCompleteCallback = complete.key
	return func(yield func(prompt.Line) bool) {
		for number := 1; ctx.Err() == nil; number++ {
			restore, err := keys.raw()
			if err != nil {
				yield(prompt.Line{Number: number, Err: fmt.Errorf("the terminal cannot be used: %w", err)})
				return
			}
			if width, height := keys.size(); width > 0 {
				_ = terminal.SetSize(width, height)
			}
			terminal.SetPrompt(s.promptText())
			read := make(chan prompt.Line, 1)
			go func() {
				text, err := terminal.ReadLine()
				read <- prompt.Line{Number: number, Text: text, Err: err}
			}()
			var line prompt.Line
			select {
			case line = <-read:
			case <-ctx.Done(): // a goroutine that waits for a key is left over
				restore()
				return
			}
			restore()
			switch {
			case watch.interrupted:
				line = prompt.Line{Number: number, Err: errInterrupted}
			case errors.Is(line.Err, io.EOF):
				return
			case line.Err == nil && utf8.RuneCountInString(line.Text) >= maxPromptLine:
				line.Err = exit.Usagef("the line has %d characters or more, which the prompt "+
					"cannot take: use a script, or the verb put", maxPromptLine)
			}
			if !yield(line) {
				return
			}
		}
	}
}

// completer completes words at the prompt.
type completer struct {
	session *txnSession
	ctx     context.Context
	screen  io.Writer

	// keyspaces has the names as of the time asked.
	keyspaces []string
	asked     time.Time
}

// keyspacesFresh is the time for which the names of keyspaces are cached.
const keyspacesFresh = 10 * time.Second

// key completes the word before the cursor when Tab is pressed, up to the point where the
// candidates differ. If there are several candidates, it shows them.
func (c *completer) key(line string, pos int, key rune) (string, int, bool) {
	if key != keyTab {
		return "", 0, false
	}
	before := line[:pos]
	start := strings.LastIndexByte(before, ' ') + 1
	word := before[start:]
	var fits []string
	for _, name := range c.candidates(strings.Fields(before[:start])) {
		if strings.HasPrefix(name, word) {
			fits = append(fits, name)
		}
	}
	slices.Sort(fits)
	if len(fits) == 0 {
		return line, pos, true
	}
	common := fits[0]
	for _, fit := range fits[1:] {
		for !strings.HasPrefix(fit, common) {
			common = common[:len(common)-1]
		}
	}
	if len(fits) == 1 {
		common += " "
	} else if common == word {
		fmt.Fprintf(c.screen, "%s\n", strings.Join(fits, "  "))
	}
	return before[:start] + common + line[pos:], start + len(common), true
}

// candidates returns the candidates for the word after words.
func (c *completer) candidates(words []string) (names []string) {
	if len(words) == 0 {
		for _, v := range txnVerbs {
			names = append(names, v.name)
		}
		return append(names, "exit", "help")
	}
	i := slices.IndexFunc(txnVerbs, func(v txnVerb) bool { return v.name == words[0] })
	switch {
	case i < 0 || len(words) > 1:
	case strings.HasPrefix(txnVerbs[i].arguments, "KEYSPACE"):
		if time.Since(c.asked) > keyspacesFresh {
			c.keyspaces, c.asked = keyspaceNames(c.ctx, c.session.client), time.Now()
		}
		return c.keyspaces
	case words[0] == "rollback-to":
		for _, p := range c.session.savepoints {
			names = append(names, p.name)
		}
	case words[0] == "begin":
		names = []string{"--commit-wait"}
	}
	return names
}
