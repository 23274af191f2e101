// Reads orders from JSON, groups them by customer and writes a report of strings.
package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

type order struct {
	ID     int      `json:"id"`
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

func main() {
	rows := make([]order, 60000)
	for i := range rows {
		rows[i] = order{i, fmt.Sprintf("n%d", i%977), []string{fmt.Sprint(i * 2), fmt.Sprint(i)}}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		panic(err)
	}
	for round := 0; round < 8; round++ {
		var found []*order
		if err := json.Unmarshal(text, &found); err != nil {
			panic(err)
		}
		groups := map[string][]string{}
		for _, one := range found {
			groups[one.Name] = append(groups[one.Name], strings.Join(one.Values, ","))
		}
		length := 0
		for name, values := range groups {
			length += len(name + strings.Join(values, ";"))
		}
		fmt.Println(len(groups), length)
	}
}
