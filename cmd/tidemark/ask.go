package main

import (
	"bufio"
	"fmt"
	"strings"
)

// confirm asks before something that cannot be undone. Without a terminal it refuses and names the flag.
func (a *app) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !a.inTerminal {
		return usagef("%s There is no terminal to ask at: give --yes to go on", question)
	}
	fmt.Fprintf(a.err, "%s Type yes to go on: ", question)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		return &codedError{exitFailed, fmt.Errorf("nothing was done")}
	}
	return nil
}
