export { default } from "../build/layouts.txt.zst";
