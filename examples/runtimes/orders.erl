%% Reads orders from text, groups them by customer and writes a report. Four processes work at a time.
%%     erlc orders.erl; erl -noshell -run orders main -s init stop
-module(orders).
-export([main/0, main/1]).

main(_) -> main().
main() ->
    Text = list_to_binary([io_lib:format("~b n~b ~b,~b~n", [I, I rem 977, I, I * 2]) || I <- lists:seq(1, 60000)]),
    Parent = self(),
    Workers = [spawn_link(fun() -> Parent ! {self(), report(Text)} end) || _ <- lists:seq(1, 4)],
    [receive {Worker, Size} -> io:format("~b~n", [Size]) end || Worker <- Workers].

report(Text) ->
    Rows = [binary:split(Line, <<" ">>, [global]) || Line <- binary:split(Text, <<"\n">>, [global, trim])],
    Groups = lists:foldl(
        fun([Id, Name, Values], Found) ->
            maps:update_with(Name, fun(Before) -> [{Id, Values} | Before] end, [{Id, Values}], Found)
        end, #{}, Rows),
    Lines = [[Name, ": ", [[Values, ";"] || {_, Values} <- lists:reverse(Found)], "\n"] || {Name, Found} <- maps:to_list(Groups)],
    byte_size(iolist_to_binary(Lines)).
